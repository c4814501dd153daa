package async_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

// TestAsyncKeepsWhatNobodyCounts: what was admitted from memory when the store went away is
// charged when it is back, whatever is done with requests meanwhile.
func TestAsyncKeepsWhatNobodyCounts(t *testing.T) {
	for _, on := range []headgate.OnError{headgate.OnErrorReturn, headgate.OnErrorAllow, headgate.OnErrorDeny, headgate.OnErrorLocal} {
		bubbletest.Test(t, func(t *testing.T) {
			primary := layertest.NewScripted()
			f, err := fallback.New(primary, fallback.Options{Local: memory.New(), Default: headgate.OnErrorAllow})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close(t.Context())
			a := open(t, f.Store(), async.Options{})
			c := anAsync(headgate.Sliding(100_000, 24*time.Hour))
			c.OnError = on
			admitted := knownIn(t, a.Store(), c)
			primary.Feel(layertest.Refuses)
			for range 100 {
				if d := layertest.Take(t, a.Store(), c).Decisions[0]; !d.Allowed || d.Source != headgate.SourceAsync {
					t.Fatalf("%v: %+v", on, d)
				}
				admitted++
			}
			time.Sleep(2 * time.Second)
			primary.Feel(layertest.Well)
			time.Sleep(30 * time.Second)
			if used := 100_000 - leftInStore(t, primary, c); used != admitted {
				t.Errorf("%q: %d units were admitted and %d are charged: %+v", on, admitted, used, a.Stats())
			}
		})
	}
}

// lateReports is a store whose answers to charges wait.
type lateReports struct {
	headgate.Store
	until chan struct{}
}

func (s *lateReports) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := s.Store.Take(ctx, op, checks, dst)
	if op == headgate.OpCharge {
		<-s.until
	}
	return out, err
}

// TestAsyncAnswerOfAnotherRule: what the store says of a limit that was lowered
// meanwhile is not taken for what it has left of the one that holds now.
func TestAsyncAnswerOfAnotherRule(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := &lateReports{memory.New(), make(chan struct{})}
		a := open(t, store, async.Options{})
		was, is := anAsync(headgate.Sliding(1_000_000, 24*time.Hour)), anAsync(headgate.Sliding(1_000, 24*time.Hour))
		knownIn(t, a.Store(), was)
		time.Sleep(150 * time.Millisecond) // A report is under way.
		a.Fraction(&is)                    // meets the rule as it is now
		close(store.until)
		bubbletest.Wait()
		out, err := a.Store().Take(t.Context(), headgate.OpPeek, []headgate.Check{is}, nil)
		if err != nil || out[0].Source != headgate.SourceStore {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// TestAsyncPenalty: a request that is denied for an async rule is one that the penalty
// of another rule counts, as if both were strict.
func TestAsyncPenalty(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := open(t, store, async.Options{})
		c := anAsync(headgate.Sliding(100, 24*time.Hour))
		login := headgate.Check{Rule: headgate.MustRule("login", headgate.Sliding(1, time.Hour), headgate.Blocking(3, time.Hour, time.Hour, time.Hour)), Key: "k"}
		for range 200 {
			_ = layertest.Take(t, a.Store(), c)
			time.Sleep(5 * time.Millisecond)
		}
		_ = layertest.Take(t, a.Store(), login)
		for range 6 {
			out, err := a.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c, login}, nil)
			if err != nil || len(out) != 3 || headgate.NewVerdict(out).Allowed {
				t.Fatalf("%+v, %v", out, err)
			}
		}
		out, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{login}, nil)
		if err != nil || out[1].Allowed {
			t.Errorf("nobody is blocked: %+v, %v", out, err)
		}
	})
}
