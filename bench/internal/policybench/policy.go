// Package policybench measures what it costs to find the rules that bind a request among
// many.
//
// # Basics
//
// [Run] makes policies of 10, 100 and 1,000 rules, which differ in what they match, and matches a
// descriptor against each of them. One of the rules binds it.
//
// # Caveats
//
// No counter is asked. Each rule has one condition, so that the figures show what finding costs,
// and not conditions that have to be evaluated in any case.
package policybench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// A run for the record takes about ten seconds.
var (
	full  = measure.Plan{Rounds: 7, Slice: 100 * time.Millisecond}
	short = measure.Plan{Rounds: 1, Slice: 20 * time.Millisecond}
)

// Run measures a policy of each kind and size.
func Run(ctx context.Context, w *measure.Work) (*report.Text, error) {
	return run(ctx, w, measure.Choose(w, full, short))
}

func run(ctx context.Context, w *measure.Work, plan measure.Plan) (*report.Text, error) {
	rows := make(measure.Rows, len(kinds))
	for i, k := range kinds {
		rows[i] = measure.Row{Name: k.name}
	}
	err := plan.Turns(ctx, w, rows, sizes, func(_, size, i int) (measure.Sample, error) {
		set, err := kinds[i].set(size)
		if err != nil {
			return measure.Sample{}, err
		}
		request := kinds[i].request()
		bound, err := set.Match(request, 1, make([]headgate.Check, 0, 8))
		if err == nil && len(bound) != 1 {
			err = fmt.Errorf("%d of %d rules bind the request, must be 1", len(bound), size)
		}
		if err != nil {
			return measure.Sample{}, err
		}
		return measure.Tight(1, plan.Slice, func(int, int) (err error) {
			checks := bound // a variable of the loop's own, which needs no memory
			for range measure.Batch {
				if checks, err = set.Match(request, 1, checks[:0]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	t := new(report.Text)
	t.Say("Nanoseconds to find the rule that binds a request with four entries, among rules that match a route, all routes that begin alike, a network, or a third of each; median of %d rounds of %v.\n\n", plan.Rounds, plan.Slice)
	var columns []measure.Column
	for _, n := range sizes {
		columns = append(columns, measure.Median(fmt.Sprintf("%d rules", n), n, measure.Sample.Nanos))
	}
	t.Say("%s", rows.Table(columns...))
	few, many, allocs := sizes[0], sizes[len(sizes)-1], 0.0
	for i := range rows {
		r := &rows[i]
		t.AtMost(3, report.Ratio(r.Median(many, measure.Sample.Nanos), r.Median(few, measure.Sample.Nanos)), "%s: %d rules ÷ %d rules", r.Name, many, few)
		for _, n := range sizes {
			allocs = math.Max(allocs, r.Median(n, measure.Sample.AllocsEach))
		}
	}
	// The runtime itself allocates a little now and then. If each match allocated, the figure
	// would be one or more.
	t.AtMost(0.01, allocs, "allocations a match, worst cell")
	return t, nil
}
