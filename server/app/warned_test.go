package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
)

// TestWarned: what happens at any rate is told once in a while, with how often it has happened.
func TestWarned(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		w := &warned{every: failedEvery}
		for round := range 3 {
			var told []int64
			for range 1000 {
				if w.due() {
					told = append(told, w.times("n").Value.Int64())
				}
			}
			// All but the first of a round are told in the next one.
			if want := int64(1 + min(round, 1)*999); len(told) != 1 || told[0] != want {
				t.Errorf("round %d: told %v, want once that it were %d", round, told, want)
			}
			time.Sleep(failedEvery)
		}
	})
}

// TestOfStore: the errors that callers have caused are not the store's.
func TestOfStore(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want bool
	}{
		{t.Context(), headgate.ErrUnavailable, true},
		{gone, headgate.ErrUnavailable, false},
		{t.Context(), headgate.Invalid("request", "checks", "there are none"), false},
		{t.Context(), headgate.ErrConflict, false},
		{t.Context(), errors.ErrUnsupported, false},
	} {
		if got := ofStore(c.ctx, c.err); got != c.want {
			t.Errorf("%v, gone %v: %v, want %v", c.err, c.ctx.Err() != nil, got, c.want)
		}
	}
}

// TestPlainCheckOfAnOutcome: whoever checks where he should reserve is told by the log, at the
// start and then once in a while; whoever reserves is not.
func TestPlainCheckOfAnOutcome(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n  - {name: login, per: [user], limits: [2 per 1h], charge_on: [401]}\n  - {name: all, per: [user], limits: [9 per 1h]}\n"
	file := t.TempDir() + "/policy.yaml"
	write(t, file, rules)
	r := start(t, Settings{PolicyFile: file})
	r.logs(t, "rules charge by the outcome, which this server does not see")
	r.logs(t, "count=1 rules=login")
	const check, warning = `{"descriptor":{"user":"ada"}}`, "a plain check was charged by rules that charge by the outcome"
	if status, body := r.do(t, "POST", "/v1/reserve", check); status != 200 {
		t.Fatal(status, body)
	}
	if strings.Contains(r.log.String(), warning) {
		t.Error("a reservation is warned of")
	}
	for range 3 {
		r.do(t, "POST", "/v1/check", check)
	}
	r.logs(t, warning)
	r.logs(t, "rules=login")
	if n := strings.Count(r.log.String(), warning); n != 1 {
		t.Errorf("warned %d times", n)
	}
}
