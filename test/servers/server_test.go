package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// expect sends a command that must succeed and compares the reply.
func expect(t *testing.T, s *Server, want any, args ...string) {
	t.Helper()
	got, err := s.Do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("%v: got %v, want %v", args, got, want)
	}
}

func TestServersAreWhatTheySay(t *testing.T) {
	Each(t, func(t *testing.T, s *Server) {
		info, err := s.Do(t.Context(), "INFO", "server")
		if err != nil {
			t.Fatal(err)
		}
		if valkey := strings.Contains(info.(string), "valkey_version:"); valkey != (s.Kind() == Valkey) {
			t.Errorf("%s describes itself as:\n%s", s.Kind(), info)
		}
		u, err := url.Parse(s.URL())
		if err != nil || u.Host != s.Addr() || u.Port() != fmt.Sprint(s.Port()) || u.User != nil {
			t.Errorf("URL %q does not match address %s (error %v)", s.URL(), s.Addr(), err)
		}
		other := Start(t, s.Kind())
		if other.Addr() == s.Addr() {
			t.Errorf("two servers share the address %s", s.Addr())
		}
		expect(t, s, "OK", "SET", "k", "first")
		expect(t, other, nil, "GET", "k")
	})
}

func TestPassword(t *testing.T) {
	const password = `pa"ss\ wörd#@/`
	Each(t, func(t *testing.T, s *Server) {
		expect(t, s, "PONG", "PING")
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := u.User.Password(); got != password {
			t.Errorf("the URL's password is %q, want %q", got, password)
		}
		_, err = do(t.Context(), s.Addr(), "", nil, []string{"PING"})
		if reply, ok := errors.AsType[redis.Error](err); !ok || !strings.HasPrefix(reply.Error(), "NOAUTH") {
			t.Errorf("without the password PING gives %v, want NOAUTH", err)
		}
	}, Password(password))
}

func TestMaxMemory(t *testing.T) {
	Each(t, func(t *testing.T, s *Server) {
		expect(t, s, "OK", "SET", "small", "1")
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			_, err = s.Do(t.Context(), "SET", fmt.Sprint(i), strings.Repeat("x", 1<<20))
		}
		if reply, ok := errors.AsType[redis.Error](err); !ok || !strings.HasPrefix(reply.Error(), "OOM") {
			t.Errorf("a full server answers %v, want OOM", err)
		}
		expect(t, s, "1", "GET", "small")
	}, MaxMemory(16<<20))
}

func TestRestart(t *testing.T) {
	stops := []struct {
		name string
		stop func(*Server)
	}{
		{"stopped", (*Server).Stop},
		{"killed", (*Server).Kill},
		{"stopped while paused", func(s *Server) { s.Pause(); s.Stop() }},
		{"stopped twice", func(s *Server) { s.Stop(); s.Stop() }},
		{"still up", func(*Server) {}},
	}
	data := []struct {
		name    string
		options []Option
		want    any
	}{
		{"volatile", nil, nil},
		{"persistent", []Option{Directive("appendonly", "yes"), Directive("appendfsync", "always")}, "1"},
	}
	for _, stop := range stops {
		for _, d := range data {
			t.Run(stop.name+"/"+d.name, func(t *testing.T) {
				Each(t, func(t *testing.T, s *Server) {
					expect(t, s, "OK", "SET", "k", "1")
					addr := s.Addr()
					stop.stop(s)
					if stop.name != "still up" {
						if _, err := s.Do(t.Context(), "PING"); err == nil {
							t.Fatal("a server that is down answers")
						}
					}
					s.Restart()
					if s.Addr() != addr {
						t.Errorf("the address was %s and is %s", addr, s.Addr())
					}
					expect(t, s, d.want, "GET", "k")
				}, d.options...)
			})
		}
	}
}

func TestPause(t *testing.T) {
	Each(t, func(t *testing.T, s *Server) {
		s.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.Do(ctx, "PING"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a paused server gives %v, want the context's deadline", err)
		}
		s.Resume()
		expect(t, s, "PONG", "PING")
	})
}

// stranger is a testing.TB whose failure is not the failure of the test that
// made it.
type stranger struct {
	testing.TB
	fatal string
}

func (s *stranger) Fatal(args ...any) {
	s.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

func (s *stranger) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// fatal runs f and returns what it failed with.
func fatal(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	s := &stranger{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(s)
	}()
	<-done
	return s.fatal
}

func TestFailures(t *testing.T) {
	for _, kind := range Kinds() {
		tests := []struct {
			name string
			path string // the PATH; "" leaves it alone
			do   func(testing.TB)
			want []string
		}{
			{
				"program is missing", t.TempDir(),
				func(t testing.TB) { Start(t, kind) },
				[]string{kind.Program() + " is not installed", "make test", "apt-get install " + kind.Program()},
			},
			{
				"directive is unknown", "",
				func(t testing.TB) { Start(t, kind, Directive("no-such-directive", "1")) },
				[]string{kind.Program(), "exit status 1", "no-such-directive"},
			},
			{
				"a signal for a server that is down", "",
				func(t testing.TB) {
					s := Start(t, kind)
					s.Kill()
					s.Pause()
				},
				[]string{kind.Program(), "is down"},
			},
			{
				"the port was taken while the server was down", "",
				func(t testing.TB) {
					s, other := Start(t, kind), Start(t, kind)
					s.Kill()
					s.port = other.port
					s.Restart()
				},
				[]string{kind.Program(), "port"},
			},
		}
		for _, tt := range tests {
			t.Run(string(kind)+"/"+tt.name, func(t *testing.T) {
				if tt.path != "" {
					t.Setenv("PATH", tt.path)
				}
				got := fatal(t, tt.do)
				for _, want := range tt.want {
					if !strings.Contains(got, want) {
						t.Errorf("got %q, want it to contain %q", got, want)
					}
				}
			})
		}
	}
}

func TestDoNeedsACommand(t *testing.T) {
	if _, err := Start(t, Redis).Do(t.Context()); err == nil {
		t.Error("no command is no error")
	}
}

// TestSetClock: the clock of one server steps ahead and back, as often as it is told, and
// nobody else's.
func TestSetClock(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, s *Server) {
		other := Start(t, s.kind)
		ahead := func(s *Server) time.Duration {
			reply, err := s.Do(t.Context(), "TIME")
			if err != nil {
				t.Fatal(err)
			}
			seconds, err := strconv.ParseInt(fmt.Sprint(reply.([]any)[0]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Until(time.Unix(seconds, 0))
		}
		for _, want := range []time.Duration{0, time.Hour, -time.Hour, 0} {
			s.SetClock(want)
			if got := ahead(s); got < want-time.Minute || got > want+time.Minute {
				t.Errorf("the server is %v ahead, want %v", got, want)
			}
			if got := ahead(other); got < -time.Minute || got > time.Minute {
				t.Errorf("another server is %v ahead", got)
			}
		}
	})
}

// TestCrashed: a server that ends by itself has crashed; one that a test ends has not.
func TestCrashed(t *testing.T) {
	s := Start(t, Redis)
	if s.crashed() {
		t.Fatal("a server that runs has crashed")
	}
	s.process.kill()
	if !s.crashed() {
		t.Error("a server that was killed from elsewhere has not crashed")
	}
	s.Kill()
	if s.crashed() {
		t.Error("a server that the test has ended has crashed")
	}
}
