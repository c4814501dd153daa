package backendbench

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store/memory"
)

func TestMeasure(t *testing.T) {
	plan := Plan{Slice: 20 * time.Millisecond, Callers: 3, Keys: 10}
	for load := range loads {
		s, err := plan.measure(t.Context(), memory.New(), load)
		if err != nil || s.PerSecond <= 0 || s.P50 > s.P99 {
			t.Errorf("load %d: %+v, %v", load, s, err)
		}
	}
}

func TestMarkdown(t *testing.T) {
	o := &Outcome{Plan: Short(), Versions: []string{"redis-server 7", "postgres 15"}}
	for i, name := range []string{Redis, Postgres} {
		r := Result{Name: name}
		for load := range loads {
			r.Samples[load] = []Sample{{PerSecond: 1000 / float64(i+1), P50: time.Millisecond, P99: 2 * time.Millisecond}}
		}
		o.Results = append(o.Results, r)
	}
	text := o.Markdown()
	for _, want := range []string{"redis-server 7, postgres 15", "| PostgreSQL", "0.50 ×"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}
