package storebench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// unhurried is a deadline that no call on a saturated machine exceeds. The default of a store is
// meant for services.
const unhurried = 10 * time.Second

// load is what callers ask of a store, each again as soon as it is answered.
type load struct {
	callers int
	slice   time.Duration
	// check is the check of every request, but for its key. All callers call key at once.
	check headgate.Check
	key   func() string
}

// clockEvery is after how many decisions a caller looks whether the time is over. A look at the
// clock costs a part of what a decision from memory costs.
const clockEvery = 16

// ask asks the store, and counts what it admits.
func (l *load) ask(ctx context.Context, store headgate.Store) (measure.Sample, error) {
	var done, admitted atomic.Int64
	cpu, start := measure.CPU(), time.Now()
	err := measure.Each(ctx, l.callers, func(ctx context.Context, _ int) (err error) {
		checks := []headgate.Check{l.check}
		var dst []headgate.Decision
		asked, passed := int64(0), int64(0)
		for ; asked == 0 || asked%clockEvery != 0 || ctx.Err() == nil && time.Since(start) < l.slice; asked++ {
			checks[0].Key = l.key()
			if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err != nil {
				break
			}
			if dst[0].Allowed {
				passed++
			}
		}
		done.Add(asked)
		admitted.Add(passed)
		return err
	})
	return measure.Sample{
		Elapsed: time.Since(start), Client: measure.CPU() - cpu, Done: int(done.Load()), Admitted: int(admitted.Load()),
	}, err
}

// insist is ask, and an error if a single answer differs from what is right.
func (l *load) insist(ctx context.Context, store headgate.Store, admitted bool) (measure.Sample, error) {
	s, err := l.ask(ctx, store)
	right := 0
	if admitted {
		right = s.Done
	}
	if err == nil && s.Admitted != right {
		err = fmt.Errorf("%d of %d requests were admitted, must be %d", s.Admitted, s.Done, right)
	}
	return s, err
}

// layered compares ways to ask with the first one, under each condition.
func layered(rows measure.Rows, conditions ...string) *report.Table {
	all, first := new(report.Table), &rows[0]
	for c, condition := range conditions {
		all.Append(rows.Under(condition).Table(
			measure.Median("decisions/s", c, measure.Sample.PerSecond),
			measure.Over("÷ "+first.Name, first, c, measure.Sample.PerSecond),
			measure.Median("client CPU a decision, µs", c, measure.Sample.ClientCPU),
			measure.Over("÷ "+first.Name, first, c, measure.Sample.ClientCPU),
			measure.Column{Name: "Redis calls a decision", Cell: func(r *measure.Row) string {
				return fmt.Sprintf("%.4f", r.Median(c, measure.Sample.CallsEach))
			}},
		))
	}
	return all
}
