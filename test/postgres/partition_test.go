package postgres_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
)

// TestLostHolder: a process that the network has cut off in the middle of a transaction,
// with its locks, keeps nobody else from the counter for long, and charges nothing.
func TestLostHolder(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t)
	through := newProxy(t, s.Addr())
	url := "postgres://headgate@" + through.addr + "/postgres?pool_max_conns=1&connect_timeout=60"
	lost, err := postgres.Open(servers.Bounded(t), url, postgres.Prefix("one:"), postgres.Timeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	rule := headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour))
	if _, err := headgate.New(lost, rule).Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	through.cut.Store(true)
	if _, err := headgate.New(lost, rule).Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("got %v from behind a cut line, want ErrUnavailable", err)
	}
	if !through.inside.Load() {
		t.Error("the line was cut, and no transaction was under way")
	}
	other := open(t, s, nil, postgres.Prefix("one:"))
	d, err := headgate.New(other, rule).Allow(t.Context(), "k")
	if err != nil || d.Remaining != 7 {
		t.Errorf("%d remain, %v; want 7", d.Remaining, err)
	}
}

// proxy forwards bytes to a server. Once it is cut, it forwards what a client says until
// a transaction has begun, and nothing more, and closes nothing.
type proxy struct {
	addr        string
	cut, inside atomic.Bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			keep(client)
			server, err := net.Dial("tcp", to)
			if err != nil {
				continue
			}
			keep(server)
			var holding atomic.Bool
			all.Go(func() { p.forward(server, client, func([]byte) bool { return !holding.Load() }) })
			all.Go(func() {
				p.forward(client, server, func(b []byte) bool {
					// "Ready for query, in a transaction".
					if p.cut.Load() && bytes.Contains(b, []byte("Z\x00\x00\x00\x05T")) {
						holding.Store(true)
						p.inside.Store(true)
					}
					return true
				})
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return p
}

// forward copies until one of them is closed; what pass refuses is lost.
func (p *proxy) forward(to io.Writer, from io.Reader, pass func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if pass(buffer[:n]) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}
