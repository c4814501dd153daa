package storebench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/store/memory"
)

// withRedis runs a test with a server of each program. A program that is missing
// fails the test: `make test` installs what it needs.
func withRedis(t *testing.T, test func(t *testing.T, w *measure.Work), programs ...string) {
	t.Helper()
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			s, err := servers.StartRedis(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			test(t, &measure.Work{Redis: s})
		})
	}
}

// eventually repeats a measurement, each time on an empty server and for four times as long, until
// nothing is wrong with who was asked: on a machine that is busy, callers ask too little in a short
// time.
func eventually(t *testing.T, w *measure.Work, slice time.Duration, measured func(slice time.Duration) (wrong string)) {
	t.Helper()
	for {
		if err := w.Redis.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wrong := measured(slice)
		if wrong == "" {
			return
		}
		t.Logf("in %v: %s", slice, wrong)
		if slice *= 4; slice > 15*time.Second {
			t.Fatal(wrong)
		}
	}
}

// holds fails the test unless the text has all of these, and every bar was measured.
func holds(t *testing.T, text *report.Text, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, b := range text.Bars {
		if math.IsNaN(b.Got) {
			t.Errorf("%s was not measured", b.What)
		}
	}
}

// TestInsist: one wrong decision is noticed.
func TestInsist(t *testing.T) {
	check := headgate.Check{Rule: headgate.MustRule("once", headgate.Per(1, time.Hour))}
	l := load{2, 10 * time.Millisecond, check, func() string { return "k" }}
	store := memory.New()
	for _, admitted := range []bool{true, false} { // the first of all requests is admitted, the others are denied
		if s, err := l.insist(t.Context(), store, admitted); err == nil || s.Admitted != 1 || s.Done < 2 {
			t.Errorf("%d of %d requests were admitted, error %v", s.Admitted, s.Done, err)
		}
		store = memory.New()
	}
}
