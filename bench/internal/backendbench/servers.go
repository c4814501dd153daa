package backendbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Servers are those that nobody else uses.
type Servers struct {
	// Postgres and Memcached are their URLs, Versions what they call themselves.
	Postgres, Memcached string
	Versions            []string

	dir       string
	processes []*exec.Cmd
}

// startWithin is how long a server may take until it answers.
const startWithin = 20 * time.Second

// Start starts a PostgreSQL and a memcached on free loopback ports. The error is
// [exec.ErrNotFound] if one of the programs is not there.
func Start(ctx context.Context) (_ *Servers, err error) {
	s := new(Servers)
	if s.dir, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
		return nil, fmt.Errorf("backendbench: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := s.startMemcached(ctx); err != nil {
		return nil, err
	}
	return s, s.startPostgres(ctx)
}

func (s *Servers) startMemcached(ctx context.Context) error {
	path, err := exec.LookPath("memcached")
	if err != nil {
		return fmt.Errorf("backendbench: %w", err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	s.Memcached = "memcached://" + addr
	return s.start(ctx, exec.Command(path, "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", "512", "-M"),
		exec.Command(path, "-V"), func(ctx context.Context) error {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			return conn.Close()
		})
}

func (s *Servers) startPostgres(ctx context.Context) error {
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return fmt.Errorf("backendbench: %w", err)
	}
	var path string
	if len(programs) > 0 {
		path = programs[len(programs)-1]
	} else if path, err = exec.LookPath("postgres"); err != nil {
		return fmt.Errorf("backendbench: %w", err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	as := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // which PostgreSQL refuses to run as
		if as.Credential, err = nobody(); err != nil {
			return err
		}
		if err := os.Chown(s.dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			return fmt.Errorf("backendbench: %w", err)
		}
	}
	bin, data := filepath.Dir(path), filepath.Join(s.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--auth=trust", "--username=headgate", "--encoding=UTF8", "--locale=C", "--pgdata="+data)
	initdb.Dir, initdb.SysProcAttr = s.dir, as
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("backendbench: initdb: %w: %s", err, out)
	}
	server := exec.Command(path, "-D", data, "-h", "127.0.0.1", "-p", port, "-c", "unix_socket_directories=")
	server.Dir, server.SysProcAttr = s.dir, as
	s.Postgres = "postgres://headgate@127.0.0.1:" + port + "/postgres"
	return s.start(ctx, server, exec.Command(path, "--version"), func(ctx context.Context) error {
		return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-U", "headgate", "-d", "postgres", "-h", "127.0.0.1", "-p", port).Run()
	})
}

// start runs a server until Stop, and notes its version.
func (s *Servers) start(ctx context.Context, server, version *exec.Cmd, ready func(context.Context) error) error {
	name, err := version.Output()
	if err != nil {
		return fmt.Errorf("backendbench: %w", err)
	}
	s.Versions = append(s.Versions, strings.TrimSpace(string(name)))
	log := new(bytes.Buffer)
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return fmt.Errorf("backendbench: %w", err)
	}
	s.processes = append(s.processes, server)
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("backendbench: %s does not answer: %w", server.Path, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the servers and removes their directory.
func (s *Servers) Stop() error {
	var failure error
	for _, p := range s.processes {
		failure = errors.Join(failure, p.Process.Signal(syscall.SIGINT)) // PostgreSQL then waits for nobody
		ended := make(chan struct{})
		go func() {
			select {
			case <-ended:
			case <-time.After(startWithin):
				_ = p.Process.Kill() // it did not heed the signal
			}
		}()
		_ = p.Wait() // how it ended does not matter
		close(ended)
	}
	return errors.Join(failure, os.RemoveAll(s.dir))
}

func nobody() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("backendbench: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("backendbench: there is neither a user postgres nor nobody to run PostgreSQL as")
}

// freePort asks the system for a port that nobody uses.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("backendbench: looking for a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
