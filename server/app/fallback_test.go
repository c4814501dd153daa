package app

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/layered/fallback"
)

// lines counts the lines of a log that hold the text.
func lines(log *buffer, text string) int { return strings.Count(log.String(), text) }

// TestLogOfAStoreThatComesAndGoes: an outage is told once, however often the store is
// back for a moment.
func TestLogOfAStoreThatComesAndGoes(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		log := new(buffer)
		l := &storeLog{logger: slog.New(slog.NewTextHandler(log, nil)), otherwise: headgate.OnErrorLocal, rules: func() []policy.Rule { return nil }}
		at := fallback.Stats{State: fallback.Closed}
		to := func(state fallback.State) {
			next := fallback.Stats{State: state, Cause: errors.New("a deadline")}
			l.changed(at, next)
			at = next
		}
		const flaps = 300
		for range 2 {
			to(fallback.Open)
			for range flaps {
				to(fallback.HalfOpen)
				to(fallback.Open)
				time.Sleep(200 * time.Millisecond)
			}
			to(fallback.HalfOpen)
			to(fallback.Closed)
		}
		for text, want := range map[string]int{
			"the store does not answer":             2,
			"the store answers again":               2,
			"the store has stopped answering again": 2,
			"the store decides again":               2,
		} {
			if got := lines(log, text); got != want {
				t.Errorf("%q was told %d times, want %d:\n%s", text, got, want, log)
			}
		}
		if marks := l.last(); len(marks) != 2 || marks[0].Until != marks[0].At+flaps*200 || marks[1].Until == 0 {
			t.Errorf("outages %+v, want 2 of a minute each", marks)
		}
		to(fallback.Open)
		to(fallback.HalfOpen)
		to(fallback.Open)
		time.Sleep(flapsEvery)
		to(fallback.HalfOpen)
		to(fallback.Open)
		if got := lines(log, "the store has stopped answering again"); got != 4 {
			t.Errorf("an outage that goes on is told %d times in all, want 4:\n%s", got, log)
		}
	})
}

// TestLogOfASickPart: requests that are decided without a store which answers others are
// told, if there are several, and not each.
func TestLogOfASickPart(t *testing.T) {
	const text = "the store does not answer some of the requests"
	bubbletest.Test(t, func(t *testing.T) {
		log := new(buffer)
		p := &sickPart{warned: warned{logger: slog.New(slog.NewTextHandler(log, nil))}}
		cause := errors.New("node 7 is gone")
		for range 10 * sickRow {
			time.Sleep(sickWithin/(sickRow-1) + time.Second)
			p.decided(cause)
		}
		if log.String() != "" {
			t.Errorf("requests that are late now and then were told: %s", log)
		}
		// All that were on their way when the whole store went end at once, before the
		// breaker opens.
		time.Sleep(2 * sickWithin)
		for range 1000 {
			p.decided(cause)
		}
		if log.String() != "" {
			t.Errorf("an outage of all of it was told as one of a part: %s", log)
		}
		for range 1000 {
			time.Sleep(sickFor / 500)
			p.decided(cause)
		}
		if lines(log, text) != 1 || lines(log, "node 7 is gone") != 1 {
			t.Errorf("a thousand requests, and the log has %q", log)
		}
		time.Sleep(warnedEvery)
		for range 1000 {
			time.Sleep(sickFor / 500)
			p.decided(cause)
		}
		if lines(log, text) != 2 {
			t.Errorf("a thousand more after a minute, and the log has %q", log)
		}
	})
}

// TestDoesWithout: what is said of a rule while the store does not answer.
func TestDoesWithout(t *testing.T) {
	for _, test := range []struct {
		mode     policy.Mode
		does     headgate.OnError
		nodes    int64
		learning bool
		want     string
	}{
		{does: headgate.OnErrorDeny, want: "refuses all"},
		{does: headgate.OnErrorAllow, want: "is open: it lets all in, uncounted"},
		{does: headgate.OnErrorLocal, nodes: 1, want: "enforces all of its limit on this server"},
		{does: headgate.OnErrorLocal, nodes: 2, want: "enforces half of its limit on this server"},
		{does: headgate.OnErrorLocal, nodes: 7, want: "enforces a 7th of its limit on this server"},
		{does: headgate.OnErrorDeny, nodes: 3, learning: true, want: "enforces a third of its limit on this server as well"},
		{mode: policy.ModeShadow, does: headgate.OnErrorDeny, want: "denies nobody, as its mode is shadow"},
	} {
		if got := doesWithout(&policy.Rule{Mode: test.mode}, test.does, test.nodes, test.learning); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
