package spelling_test

import (
	"testing"

	"github.com/headgate/headgate/internal/spelling"
)

func BenchmarkRead(b *testing.B) {
	for name, raw := range map[string]string{"plain": "/v1/items/7/parts", "encoded": "/caf%C3%A9/items/7"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := spelling.Read(raw, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
