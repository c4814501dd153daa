package memorybench

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memory"
)

// Contenders returns everything that is measured, in the order of the tables.
func Contenders() []Contender {
	ours := Contender{
		Name: "Headgate", Role: Ours, Open: openHeadgate,
		Note: "token bucket in exact integers; all limits of all checks or none; answers with remaining, retry after and reset after; bounded memory",
	}
	return append(append([]Contender{ours}, Peers()...), Harness())
}

func openHeadgate(q workload.Limits) (*Limiter, error) {
	rules, err := q.Rules()
	if err != nil {
		return nil, err
	}
	store := memory.New()
	var limiters [len(q)]*headgate.Limiter
	for c, rule := range rules {
		limiters[c] = headgate.New(store, rule)
	}
	ctx := context.Background()
	return &Limiter{Take: func(c workload.Class, key string) (bool, error) {
		d, err := limiters[c].Allow(ctx, key)
		return d.Allowed, err
	}}, nil
}
