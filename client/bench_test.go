package client

import (
	"testing"

	"github.com/headgate/headgate"
)

// BenchmarkTake is a call and, at the same time, the fake server's part in it.
func BenchmarkTake(b *testing.B) {
	for name, option := range map[string]Option{"calls": NoStreams(), "stream": StreamFrom(1)} {
		b.Run(name, func(b *testing.B) {
			f := newFake(b)
			c := dial(b, f, option)
			if name == "stream" {
				streaming(b, f, c)
			}
			before := f.numbers()
			limiter := headgate.New(c.Store(), hour)
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := limiter.Allow(b.Context(), "k"); err != nil {
						b.Error(err)
						return
					}
				}
			})
			n := f.numbers()
			if messages := n.messages - before.messages; messages > 0 {
				b.ReportMetric(float64(n.over-before.over)/float64(messages), "together")
			}
		})
	}
}
