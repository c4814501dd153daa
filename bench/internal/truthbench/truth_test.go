package truthbench

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/report"
)

// answer is what "headgate load --audit --json" has printed of a limiter that admits too much.
const answer = `{"audit": {"honest": false, "findings": [
	{"about": "admitted", "outcome": "wrong", "text": "90 of 120 admissions are beyond 10 per 5s"},
	{"about": "retry_after", "outcome": "true", "text": "in 3 rounds"},
	{"about": "denied_early", "outcome": "wrong", "text": "there was room for 2 of 40 denied requests"}],
	"held": {"admitted": 120, "denied": 40, "over": 90, "early": 2, "retry_short_ms": 12, "retry_long_ms": 980, "retry_compared": 7},
	"dialect": ["Retry-After", "X-RateLimit-*"]}}`

// TestWrite: what an audit has found stands in the table, and nothing may be wrong with ours.
func TestWrite(t *testing.T) {
	t.Parallel()
	var found struct{ Audit *audit }
	if err := json.Unmarshal([]byte(answer), &found); err != nil {
		t.Fatal(err)
	}
	one := table{"One client", []limiter{
		{name: "a liar", ours: true, flags: []string{"--limit", "10/5s", "--data", "CL.THROTTLE k 9 10 5"}, url: "redis://ADDR", found: found.Audit},
		{name: "nobody", missing: lacks("", "nobody")},
	}}
	text := new(report.Text)
	one.write(text)
	for _, want := range []string{
		"| a liar     |      120 |            90 |            2 |           −0.01 … +0.98 | admitted, denied-early |",
		"- nobody: executable file not found in $PATH: nobody, which scripts/install-test-programs --bench installs\n",
		"a liar: over-admitted, denied early, and said wrongly: 94.0, must be ≤ 0",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if got, want := one.limiters[0].shown(), "headgate load --audit --limit 10/5s --data 'CL.THROTTLE k 9 10 5' redis://127.0.0.1:8099"; got != want {
		t.Errorf("the command of an audit is %s, want %s", got, want)
	}
	if err := one.limiters[1].missing; !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("what is not installed is %v", err)
	}
}

// TestFront: connections go to the processes in turn.
func TestFront(t *testing.T) {
	t.Parallel()
	f, err := newFront(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		f.to = append(f.to, l.Addr().String())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, name) // The test sees what comes.
				_ = c.Close()
			}
		}()
	}
	f.after, f.restart = time.Hour, func() error { return nil }
	f.serve()
	got := ""
	for range 6 {
		c, err := net.Dial("tcp", f.addr())
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		got += string(text)
		_ = c.Close()
	}
	if err := f.restarted(); err == nil {
		t.Error("an audit that was over before the restart is taken for one of a restart")
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if got != "abcabc" {
		t.Errorf("the processes were reached as %q", got)
	}
}

// TestRestart: what is under the processes is restarted when it is time.
func TestRestart(t *testing.T) {
	t.Parallel()
	f, err := newFront(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	f.to, f.after, f.restart = []string{"127.0.0.1:1"}, 0, func() error { return failed }
	f.serve()
	c, err := net.Dial("tcp", f.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-f.done
	if err := f.restarted(); !errors.Is(err, failed) {
		t.Errorf("the restart has failed, and the result is %v", err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}
