package resp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// sink is a connection that takes everything and sends nothing.
type sink struct {
	net.Conn
	taken strings.Builder
}

func (s *sink) Write(b []byte) (int, error)      { return s.taken.Write(b) }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// FuzzAnswers sends anything in two parts, and holds what comes back to the protocol.
func FuzzAnswers(f *testing.F) {
	for _, line := range []string{
		"HG.CHECK mail a COST 2 login b", "HG.PEEK COST 2 DESC user u route POST·/login", "HG.REFUND mail a AT 5", "HG.RESET RULE mail COST",
		"HG.RESERVE mail a ID r FOR 10", "HG.ACQUIRE report k h COST 1 TTL 100 KEEP 100", "HG.RENEW report k h 5 TTL 100", "HG.RELEASE report k h 5", "HG.SETTLE r COST 2 STATUS 200", "HG.CANCEL r", "HG.RULES", "CL.THROTTLE k 1 2 3 4", "HELLO 3 AUTH default x", "CLIENT SETNAME x",
		"COMMAND DOCS", "COMMAND INFO ping", "INFO", "PING x", "RESET", "QUIT", "SELECT 1", "NOTHING",
	} {
		f.Add("HELLO 3\r\n"+wireLine(line)+line+"\n", 3)
	}
	var deciders []decide.Decider
	for _, store := range []headgate.Store{memory.New(memory.MaxBytes(memory.MinMaxBytes)), broken{headgate.ErrUnavailable}} {
		deciders = append(deciders, over(samplePolicy(f), store))
	}
	f.Fuzz(func(t *testing.T, text string, at int) {
		for _, d := range deciders {
			for _, o := range []Options{{}, {SideBySide: true}, {Token: "0123456789abcdef"}} {
				s := New(d, o)
				t.Cleanup(func() { _ = s.Close() }) // It returns nil.
				out := new(sink)
				c := newConn(s, out)
				for _, part := range []string{text[:clamp(at, len(text))], text[clamp(at, len(text)):]} {
					for part != "" && !c.quit {
						c.makeRoom()
						n := copy(c.buf[c.filled:], part)
						if n == 0 {
							t.Fatal("there is no room for more")
						}
						c.filled, part = c.filled+n, part[n:]
						c.batch()
						c.flush()
					}
				}
				r := bufio.NewReader(strings.NewReader(out.taken.String()))
				for {
					if _, err := r.Peek(1); errors.Is(err, io.EOF) {
						break
					}
					if _, err := show(r); err != nil {
						t.Fatalf("%q is answered with %q: %v", text, out.taken.String(), err)
					}
				}
			}
		}
	})
}

func clamp(n, most int) int { return min(max(n, 0), most) }
