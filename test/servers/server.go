package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTime is how long a server may take until it answers PING. It takes
	// some 20 ms; the rest is for a machine that is busy with other tests.
	startTime = time.Minute
	// stopTime is how long a server may take to end on SIGTERM before it is
	// killed.
	stopTime = 10 * time.Second
	// pollTime is the pause between two attempts.
	pollTime = 5 * time.Millisecond
	// mostPause is the longest pause between two looks at several servers.
	mostPause = 80 * time.Millisecond
)

// Server is one running server process. Its methods are safe for concurrent use,
// but those that fail the test must be called from the test's own goroutine, as
// t.Fatal must.
type Server struct {
	kind     Kind
	t        testing.TB
	program  string
	dir      string
	settings settings
	port     int
	bus      int // where the nodes of a cluster speak to one another

	mu      sync.Mutex // guards what follows
	process *process   // nil while the server is down
	paused  bool
}

// process is one life of a server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has ended
}

// Start starts a server and waits until it answers. It fails the test if the
// program is missing or does not come up. The server is killed when the test and
// its subtests end; if the test failed, the end of its log is shown then.
func Start(t testing.TB, kind Kind, options ...Option) *Server {
	t.Helper()
	program, err := kind.find()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{kind: kind, t: t, program: program, dir: t.TempDir()}
	for _, option := range options {
		option(&s.settings)
	}
	t.Cleanup(s.cleanup)
	const tries = 5
	for range tries {
		s.port, s.bus = Port(t), Port(t)
		if err = s.configure(); err != nil {
			t.Fatal(err)
		}
		if err = s.start(); err == nil {
			return s
		}
		if !portTaken(s.logTail(), s.port, s.bus) {
			break
		}
	}
	t.Fatal(err)
	return nil
}

// configure writes the configuration file. It is written once: a Sentinel changes
// its own and those of its servers, and a restart must find what it wrote.
func (s *Server) configure() error {
	if err := os.WriteFile(s.configPath(), []byte(s.settings.config(s.dir, s.port, s.bus)), 0o600); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	return nil
}

// start starts the process on s.port and waits until it answers PING.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	defer log.Close()
	args := []string{s.configPath()}
	if s.settings.sentinel {
		args = append(args, "--sentinel")
	}
	p := &process{cmd: exec.Command(s.program, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = s.dir, log, log
	p.cmd.SysProcAttr = attributes()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	go func() {
		defer close(p.done)
		// How it ended does not matter: the tests end it by force, and a
		// process that ends by itself is noticed below.
		_ = p.cmd.Wait()
	}()
	if err := s.await(p); err != nil {
		p.kill()
		return fmt.Errorf("servers: %s on port %d: %w; its log ends with:\n%s", s.kind.Program(), s.port, err, s.logTail())
	}
	s.process = p
	return nil
}

// await returns once the process answers PING.
func (s *Server) await(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		_, err := s.Do(ctx, "PING")
		if err == nil {
			return s.identify(ctx, p)
		}
		if reply, ok := errors.AsType[ReplyError](err); ok && !strings.HasPrefix(string(reply), "LOADING") {
			return fmt.Errorf("it refused PING: %w", err)
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended (%v) before it answered", p.cmd.ProcessState)
		case <-time.After(pollTime):
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", startTime, err)
		}
	}
}

// identify returns an error if it is not the process that answers on the port: an
// older server there would answer just as well, until the new one finds that it
// cannot have the port.
func (s *Server) identify(ctx context.Context, p *process) error {
	info, err := s.Do(ctx, "INFO", "server")
	if err != nil {
		return err
	}
	text, _ := info.(string)
	if want := fmt.Sprintf("\r\nprocess_id:%d\r\n", p.cmd.Process.Pid); !strings.Contains(text, want) {
		return errors.New("another process answers on its port")
	}
	return nil
}

// Kind is the program that runs.
func (s *Server) Kind() Kind { return s.kind }

// Addr is the server's address, such as "127.0.0.1:20001". It stays the same over
// a Restart.
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port }

// URL is the server's address as stores and clients are configured with it,
// such as "redis://127.0.0.1:20001/0". It contains the password and the
// certificates, if there are any.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	s.settings.addTo(&u)
	return u.String()
}

// Do sends one command over a connection of its own and returns the reply: a
// string, an int64, nil, or a []any of these. An error that the server answers
// with wraps a [ReplyError]. A paused server answers nothing: Do waits until the
// context ends, and for [Patience] at most.
func (s *Server) Do(ctx context.Context, args ...string) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("servers: Do needs a command")
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	c, err := dial(ctx, s.Addr(), s.settings.password, s.settings.clientTLS())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reply, err := c.do(args...)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return reply, err
}

// Stop ends the server as an operator would: with SIGTERM, on which it closes its
// connections and, if told to persist, saves. It does nothing to a server that is
// down.
func (s *Server) Stop() {
	if p := s.take(); p != nil {
		// A paused process would not see the signal.
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(stopTime):
			p.kill()
		}
	}
}

// Kill ends the server at once, as a crash would. It does nothing to a server
// that is down.
func (s *Server) Kill() {
	if p := s.take(); p != nil {
		p.kill()
	}
}

// Restart starts the server again, on the same port, after Stop or Kill; a server
// that is still up is stopped first. Its data is gone, unless a [Directive] made
// it persist. It fails the test if the server does not come up.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause freezes the server (SIGSTOP): its port still accepts connections, and
// nothing answers. A server that is down fails the test.
func (s *Server) Pause() {
	s.t.Helper()
	s.mustSignal(syscall.SIGSTOP)
}

// Resume lets a paused server go on. A server that is down fails the test.
func (s *Server) Resume() {
	s.t.Helper()
	s.mustSignal(syscall.SIGCONT)
}

// SetClock sets the server's wall clock so many whole seconds ahead of the machine's, or back
// if they are negative; 0 is right again. A server that is started again has a clock that is
// right. A server that is down fails the test.
func (s *Server) SetClock(ahead time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.t.Fatalf("servers: %s on port %d is down and has no clock", s.kind.Program(), s.port)
	}
	if err := SetClock(s.process.cmd.Process.Pid, ahead); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) mustSignal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.t.Fatalf("servers: %s on port %d is down and cannot get %v", s.kind.Program(), s.port, sig)
	}
	if err := send(s.process.cmd.Process.Pid, sig); err != nil {
		s.t.Fatal(err)
	}
	s.paused = sig == syscall.SIGSTOP
}

// up reports whether the server runs.
func (s *Server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != nil
}

// crashed reports whether the server has ended although nobody ended it.
func (s *Server) crashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return false
	}
	select {
	case <-s.process.done:
		return true
	default:
		return false
	}
}

// answers reports whether the server runs and is not paused.
func (s *Server) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != nil && !s.paused
}

// take returns the running process, if there is one, and marks the server as
// down.
func (s *Server) take() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.process, s.paused = nil, false
	return p
}

func (s *Server) cleanup() {
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("the log of %s on port %d ends with:\n%s", s.kind.Program(), s.port, s.logTail())
	}
}

func (s *Server) configPath() string { return filepath.Join(s.dir, "server.conf") }

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

// logTail is the end of the server's log, over all its lives.
func (s *Server) logTail() string {
	const bytes = 1024 // a Cluster has six servers, and what failed should be seen beside them
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-bytes):])
}

// signal sends sig. A process that has ended meanwhile is what its sender wants
// or will find out.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}
