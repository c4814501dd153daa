package lease_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/lease"
)

// instantStore is a store that admits everything at no cost.
type instantStore struct{}

func (instantStore) Take(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range checks {
		limits := checks[i].Rule.Limits()
		for j := range limits {
			dst = append(dst, headgate.Decision{Rule: checks[i].Rule, Limit: &limits[j], Check: i, Allowed: true, Remaining: limits[j].Capacity()})
		}
	}
	return dst, nil
}

func BenchmarkLease(b *testing.B) {
	rule := headgate.MustRule("r", headgate.PerSecond(100_000_000))
	for name, keys := range map[string]int{"hot": 1, "cold": 1 << 20} {
		texts := make([]string, keys)
		for i := range texts {
			texts[i] = "key " + strconv.Itoa(i)
		}
		b.Run(name, func(b *testing.B) {
			l := openUnclosed(b, instantStore{}, lease.Options{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				checks := []headgate.Check{{Rule: rule, Hints: headgate.Hints{Consistency: headgate.Leased}}}
				var dst []headgate.Decision
				for i := 0; pb.Next(); i++ {
					checks[0].Key = texts[i*7919%keys]
					out, err := l.Store().Take(context.Background(), headgate.OpTake, checks, dst[:0])
					if err != nil {
						b.Fatal(err)
					}
					dst = out
				}
			})
			if err := l.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(name+"/strict", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				checks := []headgate.Check{{Rule: rule}}
				var dst []headgate.Decision
				for i := 0; pb.Next(); i++ {
					checks[0].Key = texts[i*7919%keys]
					dst, _ = instantStore{}.Take(context.Background(), headgate.OpTake, checks, dst[:0])
				}
			})
		})
	}
}
