//go:build !race

package resp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// quick is a decider whose limits are never reached.
func quick(t testing.TB) decide.Decider {
	t.Helper()
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("api", headgate.PerSecond(1_000_000_000)), Direct: true},
		{Limits: headgate.MustRule("everyone", headgate.PerSecond(1_000_000_000))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return over(set, memory.New())
}

// nowhere takes everything and keeps nothing.
type nowhere struct{ sink }

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

var remaining, answer = []string{"7"}, []byte("{}\n")

// plain answers always the same.
func plain(w http.ResponseWriter, _ *http.Request) {
	w.Header()["X-Ratelimit-Remaining"] = remaining
	_, _ = w.Write(answer) // It cannot fail.
}

// batches returns what answers the text, as if it had arrived at once.
func batches(d decide.Decider, text string) func() {
	c := newConn(New(d, Options{API: http.HandlerFunc(plain)}), new(nowhere))
	return func() {
		c.makeRoom()
		for len(c.buf) < len(text) {
			c.buf = make([]byte, len(text))
		}
		c.filled = copy(c.buf, text)
		c.batch()
		c.flush()
	}
}

// TestAllocations bounds what answers allocate: one string for all that arrived
// together, whose memory keys share, and nothing else. The race detector empties
// pools at random, so this is for builds without it.
func TestAllocations(t *testing.T) {
	for _, line := range []string{
		"HG.CHECK api user42", "HG.CHECK api user42 COST 3 api user43", "HG.CHECK DESC ip 203.0.113.10 user user42", "HG.PEEK api user42",
		"CL.THROTTLE user42 15 30 60", "CL.THROTTLE user42 15 30 60 1", "PING", "ECHO x", "HG.POST /v1/check?at=true {}",
	} {
		for _, commands := range []int{1, 20} {
			run := batches(quick(t), strings.Repeat(wireLine(line), commands))
			run() // Buffers grow once.
			if n := testing.AllocsPerRun(100, run); n > 1 {
				t.Errorf("%d of %s: %v allocations, want 1", commands, line, n)
			}
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	for _, line := range []string{"HG.CHECK api user42", "HG.CHECK DESC ip 203.0.113.10 user user42", "CL.THROTTLE user42 15 30 60", "PING"} {
		b.Run(strings.Fields(line)[0]+"-"+strings.Fields(line + " _")[1], func(b *testing.B) {
			const together = 50
			run := batches(quick(b), strings.Repeat(wireLine(line), together))
			b.ReportAllocs()
			for n := 0; n < b.N; n += together {
				run()
			}
		})
	}
}
