package outagebench

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/redisbench"
)

// TestRun goes through everything once, on both kinds of server. Figures of so
// short a time mean nothing, but who decides does.
func TestRun(t *testing.T) {
	for _, program := range []string{"redis-server", "valkey-server"} {
		t.Run(program, func(t *testing.T) {
			s, err := redisbench.Start(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			o, err := Run(t.Context(), s, Plan{
				Rounds: 1, Slice: 50 * time.Millisecond, Callers: 8, Rate: 1000, Keys: 100, Hang: time.Second, HangOthers: 300 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Hangs) != len(ways) || len(o.Well) != len(ways) {
				t.Fatalf("%d and %d ways", len(o.Well), len(o.Hangs))
			}
			for i, h := range o.Hangs {
				switch all := h.All.TotalCount(); {
				case all < int64(h.For/time.Millisecond)/2:
					t.Errorf("%s: %d requests in %v", h.Name, all, h.For)
				case i < 2 && h.Undecided == 0:
					t.Errorf("%s: all requests were decided", h.Name)
				case i == 2 && h.Undecided != 0:
					t.Errorf("%s: %d of %d requests without a decision", h.Name, h.Undecided, all)
				}
			}
			text := o.Markdown()
			for _, want := range []string{ways[0].name, ways[1].name, ways[2].name, "| bar"} {
				if !strings.Contains(text, want) {
					t.Errorf("the tables lack %q:\n%s", want, text)
				}
			}
		})
	}
}
