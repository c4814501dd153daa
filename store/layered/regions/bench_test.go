package regions_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/regions"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkTake is what the layer adds to a decision of the store inside.
func BenchmarkTake(b *testing.B) {
	store := memory.New()
	rule := headgate.MustRule("r", headgate.PerSecond(1_000_000))
	for _, scope := range []headgate.Scope{headgate.Regional, headgate.Global} {
		b.Run(scope.String(), func(b *testing.B) {
			l, err := regions.New(store, regions.Options{Region: "eu", Regions: []string{"eu", "us"}, Store: store, Home: memory.New(), Floor: 50})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close(context.Background())
			checks := []headgate.Check{{Rule: rule, Key: "k", Hints: headgate.Hints{Scope: scope}}}
			var dst []headgate.Decision
			from := l.Store()
			b.ReportAllocs()
			for b.Loop() {
				if dst, err = from.Take(context.Background(), headgate.OpTake, checks, dst[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
