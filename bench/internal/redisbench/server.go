package redisbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// Server is a running Redis or Valkey that nobody else uses.
type Server struct {
	// Addr is its host and port.
	Addr string
	// Version is its name and version, such as "redis-server 7.0.15".
	Version string

	admin rueidis.Client // for INFO and the like, apart from the contenders' traffic
	cmd   *exec.Cmd
	log   bytes.Buffer
	dir   string
}

// startWithin is how long a server may take until it answers, and to end.
const startWithin = 10 * time.Second

// Start runs the server binary on a free loopback port, without persistence.
func Start(ctx context.Context, binary string) (_ *Server, err error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, fmt.Errorf("redisbench: %w", err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, fmt.Errorf("redisbench: %w", err)
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
	s.cmd = exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("redisbench: starting %s: %w", path, err), os.RemoveAll(dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	deadline := time.Now().Add(startWithin)
	for {
		s.admin, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true})
		if err == nil {
			break
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("redisbench: %s did not answer on %s within %v: %w; its log: %s", binary, s.Addr, startWithin, err, &s.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
	info, err := s.info(ctx, "server")
	if err != nil {
		return nil, err
	}
	s.Version = binary + " " + info["redis_version"]
	if v, ok := info["valkey_version"]; ok {
		s.Version = binary + " " + v
	}
	return s, nil
}

// Stop ends the server and removes its directory.
func (s *Server) Stop() error {
	if s.admin != nil {
		s.admin.Close()
	}
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-time.After(startWithin):
			_ = s.cmd.Process.Kill() // It did not heed the signal; Wait reports how it ended.
		}
	}()
	err = errors.Join(err, s.cmd.Wait())
	close(ended)
	if err = errors.Join(err, os.RemoveAll(s.dir)); err != nil {
		return fmt.Errorf("redisbench: stopping the server: %w", err)
	}
	return nil
}

// freePort asks the system for a port that nobody uses.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("redisbench: looking for a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err = errors.Join(err, l.Close()); err != nil {
		return "", fmt.Errorf("redisbench: looking for a free port: %w", err)
	}
	return port, nil
}
