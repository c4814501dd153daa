package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Kind is a server program that speaks the Redis protocol.
type Kind string

// The kinds that every promise is tested on.
const (
	Redis  Kind = "redis"
	Valkey Kind = "valkey"
)

// Kinds are all the kinds, in the order in which [Each] takes them.
func Kinds() []Kind { return []Kind{Redis, Valkey} }

// Program is the name of the kind's executable, such as "redis-server". It is
// the name of the Debian package as well.
func (k Kind) Program() string { return string(k) + "-server" }

// Each runs test as a subtest for every kind, named after it, with a server
// started for that subtest alone.
func Each(t *testing.T, test func(t *testing.T, s *Server), options ...Option) {
	t.Helper()
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			test(t, Start(t, kind, options...))
		})
	}
}

// Server is one running server of the Redis kind.
type Server struct {
	*Daemon
	kind     Kind
	settings settings
	bus      int // where the nodes of a cluster speak to one another
}

// Start starts a server and waits until it answers. It fails the test if the
// program is missing or does not come up. The server is killed when the test and
// its subtests end; if the test failed, the end of its log is shown then.
func Start(t testing.TB, kind Kind, options ...Option) *Server {
	t.Helper()
	program, err := find(kind.Program(), kind.Program())
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, name: kind.Program(), dir: t.TempDir()}
	s := &Server{Daemon: d, kind: kind}
	for _, option := range options {
		option(&s.settings)
	}
	config := filepath.Join(d.dir, "server.conf")
	var configured int // for which port
	var cmd *exec.Cmd
	d.command = func() *exec.Cmd {
		// It is written once: a Sentinel changes its own and those of its servers, and a restart
		// must find what it wrote.
		if configured != d.port {
			configured, s.bus = d.port, Port(t)
			if err := os.WriteFile(config, []byte(s.settings.config(d.dir, d.port, s.bus)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd = exec.Command(program, config)
		if s.settings.sentinel {
			cmd.Args = append(cmd.Args, "--sentinel")
		}
		cmd.Dir, cmd.SysProcAttr = d.dir, attributes()
		return cmd
	}
	d.ready = func(ctx context.Context) error {
		// An older server on the port would answer just as well.
		info, err := s.Do(ctx, "INFO", "server")
		if err == nil && !strings.Contains(fmt.Sprint(info), fmt.Sprintf("\r\nprocess_id:%d\r\n", cmd.Process.Pid)) {
			err = errors.New("another process answers on its port")
		}
		if err == nil {
			_, err = s.Do(ctx, "PING") // fails while it loads
		}
		return err
	}
	startDaemon(d)
	return s
}

// Kind is the program that runs.
func (s *Server) Kind() Kind { return s.kind }

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

// Do sends one command over a connection of its own and returns the reply: a string, an int64, nil,
// or a []any of these. An error that the server answers with is a [redis.Error]. A paused server
// answers nothing: Do waits until the context ends, and for [Patience] at most.
func (s *Server) Do(ctx context.Context, args ...string) (any, error) {
	return do(ctx, s.Addr(), s.settings.password, s.settings.clientTLS(), args)
}

func do(ctx context.Context, addr, password string, config *tls.Config, args []string) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("servers: Do needs a command")
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	// The client logs when nobody listens, which is usual while a server starts.
	listens, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("servers: %s: %w", args[0], err)
	}
	listens.Close()
	client := redis.NewClient(&redis.Options{
		Addr: addr, Password: password, TLSConfig: config, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1,
	})
	defer client.Close()
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	reply, err := client.Do(ctx, command...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The connection has the context's deadline, and may notice it first.
		err = fmt.Errorf("servers: %s: %w (%w)", args[0], err, context.DeadlineExceeded)
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("servers: %s: %w (%w)", args[0], err, ctx.Err())
	case err != nil:
		err = fmt.Errorf("servers: %s: %w", args[0], err)
	}
	return reply, err
}

// Restart starts the server again, on the same port, after Stop or Kill; a server that is still up
// is stopped first. Its data is gone, unless a [Directive] made it persist. It fails the test if the
// server does not come up.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Daemon.Restart()
}
