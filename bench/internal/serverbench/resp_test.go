package serverbench

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

func TestSkipRESP(t *testing.T) {
	const good = "*3\r\n$7\r\nallowed\r\n:1\r\n*2\r\n$-1\r\n*0\r\n"
	r := bufio.NewReader(strings.NewReader(good + "+PONG\r\n" + good))
	for range 3 {
		if err := skipRESP(r); err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
		t.Errorf("%q is left, %v", rest, err)
	}
	for _, bad := range []string{"", "-ERR no\r\n", "*2\r\n:1\r\n", "$9\r\nabc\r\n", "$x\r\n", "*-2\r\n", "HTTP/1.1 400\r\n"} {
		if err := skipRESP(bufio.NewReader(strings.NewReader(bad))); err == nil {
			t.Errorf("%q is taken for an answer", bad)
		}
	}
}

func FuzzSkipRESP(f *testing.F) {
	f.Add("*2\r\n$1\r\na\r\n:1\r\n")
	f.Add("*\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		if err := skipRESP(bufio.NewReader(strings.NewReader(text))); err == nil && !strings.ContainsRune("+:$*", rune(text[0])) {
			t.Errorf("%q is taken for an answer", text)
		}
	})
}

// answering is a server that answers every line with the same.
func answering(t *testing.T, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if line != "PING\r\n" {
						continue
					}
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestLoopOverRESP(t *testing.T) {
	l := commands(12, 2, 5, "+PONG\r\n", ping)
	s, err := l.run(t.Context(), answering(t, "+PONG\r\n"), 20*time.Millisecond)
	if err != nil || s.Done == 0 || s.Done%5 != 0 || s.Took.TotalCount() != int64(s.Done/5) {
		t.Errorf("%d were answered, %v", s.Done, err)
	}
	if _, err := l.run(t.Context(), answering(t, "-ERR no\r\n"), 20*time.Millisecond); err == nil || !strings.Contains(err.Error(), "-ERR no") {
		t.Errorf("the error is %v", err)
	}
}

func TestRESPText(t *testing.T) {
	plan := measure.Plan{Rounds: 1, Slice: time.Second, Callers: 64, Keys: 100}
	var rows measure.Rows
	for i, c := range respField(plan, func(args ...string) []string { return args }) {
		r := measure.Row{Name: c.name, Role: c.role}
		r.Add(0, measure.Sample{Done: 1000, Elapsed: time.Second, Server: time.Duration(i+1) * time.Millisecond})
		rows = append(rows, r)
	}
	text := respText(plan, rows).String()
	for _, want := range []string{"| RESP, HG.CHECK, pipelined", "6.00 ×", "1 of 3 bars are met", "- RESP, CL.THROTTLE, pipelined: checks a CPU second ÷ gRPC: 2.00, must be ≥ 5.00"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}
