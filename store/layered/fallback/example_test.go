package fallback_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
)

// away is a store that does not answer, such as a Redis that is down.
type away struct{}

func (away) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

// While the store is away, each of two nodes counts half of the limit.
func Example() {
	ctx := context.Background()
	without, err := fallback.New(away{}, fallback.Options{
		Local:   memory.New(),
		Default: headgate.OnErrorLocal,
		Nodes:   2,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer without.Close(ctx)
	limiter := headgate.New(without.Store(), headgate.MustRule("login", headgate.PerHour(4)))
	for range 3 {
		d, err := limiter.Allow(ctx, "user42")
		fmt.Println(d.Allowed, d.Source, err)
	}
	// Output:
	// true local <nil>
	// true local <nil>
	// false local <nil>
}
