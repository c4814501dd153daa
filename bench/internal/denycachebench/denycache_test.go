package denycachebench

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/redisbench"
)

// TestRun goes through everything once. Figures of so short a time mean nothing, but
// who is asked does.
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
			o, err := Run(t.Context(), s, Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 8, Denied: 100})
			if err != nil {
				t.Fatal(err)
			}
			for way := range ways {
				flood, cold := o.Flood[way][0], o.Cold[way][0]
				if flood.Decisions == 0 || cold.Calls == 0 || way != cached && flood.Calls == 0 || way == cached && flood.Calls >= flood.Decisions {
					t.Errorf("%s: flood %+v, cold %+v", wayNames[way], flood, cold)
				}
			}
			for _, want := range []string{"one denied key, calls combined, with a deny cache", "cold keys, one call each", "Redis calls a decision"} {
				if text := o.Markdown(); !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
		})
	}
}
