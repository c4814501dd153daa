package httplimit

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// giveBackWithin bounds a refund that must outlive the request's context.
const giveBackWithin = time.Second

// Hold waits for the delay of an admitted verdict, which a leaky bucket asks for.
// The checks are those that the verdict is of. If the delay is longer than most,
// or ends after the context's deadline, Hold does not wait and turns the verdict
// into a denial; if the context ends meanwhile it returns the context's error.
// Either way giveBack is handed what the request took, with a context that
// outlives the request's by at most a second.
func Hold(ctx context.Context, v *headgate.Verdict, checks []headgate.Check, most time.Duration, giveBack func(context.Context, []headgate.Check)) error {
	return hold(ctx, v, checks, most, sleep, giveBack)
}

func hold(ctx context.Context, v *headgate.Verdict, checks []headgate.Check, most time.Duration, sleep func(context.Context, time.Duration) error, giveBack func(context.Context, []headgate.Check)) error {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, max(0, time.Until(deadline)))
	}
	if v.Delay > most {
		giveBackCharged(ctx, checks, v.Decisions, giveBack)
		deny(v, checks, most)
		return nil
	}
	if err := sleep(ctx, v.Delay); err != nil {
		giveBackCharged(ctx, checks, v.Decisions, giveBack)
		return err
	}
	return nil
}

// deny turns an admitted verdict, whose units were given back, into a denial by
// the limits that would have it wait for longer than most.
func deny(v *headgate.Verdict, checks []headgate.Check, most time.Duration) {
	for i := range v.Decisions {
		d := &v.Decisions[i]
		d.Remaining = min(d.Remaining+checks[d.Check].Units(), d.Limit.Capacity())
		if d.Delay > most {
			d.Allowed, d.RetryAfter = false, d.Delay-most
		}
		d.Delay = 0
	}
	*v = headgate.NewVerdict(v.Decisions)
}

// giveBackCharged hands on the checks that were charged, each with the time of
// that.
func giveBackCharged(ctx context.Context, checks []headgate.Check, decisions []headgate.Decision, giveBack func(context.Context, []headgate.Check)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	giveBack(ctx, Charged(checks, decisions))
}

// Charged returns the checks of an admitted request that were charged, each with the
// time of that: what to give back if it does not count after all. What nobody has
// counted is none of them; the store may be back by then, and never knew of it.
func Charged(checks []headgate.Check, decisions []headgate.Decision) []headgate.Check {
	none := make([]bool, len(checks)) // shadows that did not fit, and what was let in without the store
	for i := range decisions {
		d := &decisions[i]
		checks[d.Check].At = d.At
		none[d.Check] = none[d.Check] || !d.Allowed || d.Source == headgate.SourceOpen
	}
	all := make([]headgate.Check, 0, len(checks))
	for i := range checks {
		if !none[i] {
			all = append(all, checks[i])
		}
	}
	return all
}

// sleep waits for d or for the context, whichever ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
