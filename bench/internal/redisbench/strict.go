package redisbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Series is what was measured of one contender, by number of callers.
type Series struct {
	Contender Contender
	Samples   map[int][]Sample
}

// expectation says which answer is right for a key of the class, once it has
// been asked about before.
type expectation func(workload.Class) bool

func byClass(c workload.Class) bool { return c == workload.Wide }
func always(workload.Class) bool    { return true }

// compare measures contenders round by round, each round beginning with another
// one, all with the same keys.
func (s *Server) compare(ctx context.Context, plan Plan, contenders []Contender, callers []int, keys *workload.Sequence, right expectation) (_ []Series, err error) {
	if err := s.Flush(ctx); err != nil {
		return nil, err
	}
	limiters := make([]*Limiter, len(contenders))
	series := make([]Series, len(contenders))
	for i, c := range contenders {
		plan.progress("%s: filling: %s", s.Version, c.Name)
		if limiters[i], err = c.Open(ctx, s.Addr, strictLimits); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		defer func() { err = errors.Join(err, limiters[i].Close()) }()
		if err := fill(ctx, limiters[i], plan.Keys); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		series[i] = Series{Contender: c, Samples: map[int][]Sample{}}
	}
	for round := range plan.Rounds {
		for n, asking := range callers {
			plan.progress("%s: round %d of %d, %d callers", s.Version, round+1, plan.Rounds, asking)
			// Contenders of one round are asked about the same keys, those of the
			// next about others.
			from := (round*len(callers) + n) * keys.Len() / (plan.Rounds * len(callers))
			for i := range contenders {
				i = (i + round) % len(contenders)
				ask := func(ctx context.Context, at int) error {
					class, key := keys.At(from + at)
					return insist(ctx, limiters[i], class, key, right(class))
				}
				sample, err := s.measure(ctx, asking, until(plan.Slice), ask)
				if err != nil {
					return nil, fmt.Errorf("%s, %d callers: %w", contenders[i].Name, asking, err)
				}
				series[i].Samples[asking] = append(series[i].Samples[asking], sample)
			}
		}
	}
	return series, nil
}

// fill asks once about each of the first keys, which must all be admitted.
func fill(ctx context.Context, l *Limiter, keys int) error {
	_, err := askAll(ctx, many, times(keys), func(ctx context.Context, i int) error {
		return insist(ctx, l, workload.ClassOf(i), workload.Key(i), true)
	})
	if err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	return nil
}
