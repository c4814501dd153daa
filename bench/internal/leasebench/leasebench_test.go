package leasebench

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/redisbench"
)

// TestRun goes through everything once. Figures of so short a time mean nothing, but
// counts do.
func TestRun(t *testing.T) {
	s, err := redisbench.Start(t.Context(), "redis-server")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	o, err := Run(t.Context(), s, Plan{Rounds: 2, Slice: 200 * time.Millisecond, Callers: 16, Nodes: 3, Keys: 2000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Hot {
		if p := o.Hot[i]; p.Strict.Calls != p.Strict.Decisions || p.Leased.Calls >= p.Leased.Decisions || p.Leased.Over != 0 {
			t.Errorf("hot: %+v", p)
		}
		if c := o.Tight[i]; c.Over != 0 || c.Admitted == 0 || c.Admitted > c.Asked {
			t.Errorf("tight: %+v", c)
		}
	}
	text := o.Markdown()
	for _, want := range []string{"one hot key, leased", "none hot, strict", "| bar"} {
		if !strings.Contains(text, want) {
			t.Errorf("the tables lack %q:\n%s", want, text)
		}
	}
}
