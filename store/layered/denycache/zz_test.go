package denycache_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/denycache"
)

type zzStore struct{}

func (zzStore) Take(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range checks {
		limits := checks[i].Rule.Limits()
		for j := range limits {
			d := headgate.Decision{Rule: checks[i].Rule, Limit: &limits[j], Check: i, Allowed: checks[i].Key[0] != 'd', Remaining: limits[j].Capacity(), At: 1}
			if !d.Allowed {
				d.RetryAfter = time.Hour
			}
			dst = append(dst, d)
		}
	}
	return dst, nil
}

func BenchmarkZ(b *testing.B) {
	rule := headgate.MustRule("r", headgate.PerSecond(100_000_000))
	for _, remembered := range []int{0, 10, 10000} {
		for name, prefix := range map[string]string{"others": "o", "denied": "d"} {
			const keys = 1 << 17
			texts := make([]string, keys)
			for i := range texts {
				texts[i] = prefix + "key " + strconv.Itoa(i)
			}
			n := keys
			if prefix == "d" {
				if n = remembered; n == 0 {
					continue
				}
			}
			b.Run(name+strconv.Itoa(remembered), func(b *testing.B) {
				l, _ := denycache.New(zzStore{}, denycache.Options{All: true, Trust: time.Hour})
				for i := range remembered {
					l.Store().Take(context.Background(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: "dkey " + strconv.Itoa(i)}}, nil)
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					checks := []headgate.Check{{Rule: rule}}
					var dst []headgate.Decision
					for i := 0; pb.Next(); i++ {
						checks[0].Key = texts[i*7919%n]
						out, err := l.Store().Take(context.Background(), headgate.OpTake, checks, dst[:0])
						if err != nil {
							b.Fatal(err)
						}
						dst = out
					}
				})
				_ = l.Close(context.Background())
			})
		}
	}
}
