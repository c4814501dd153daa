package dispatch

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q queue[int]
	var oracle []int
	for i := range 10_000 {
		switch n := rng.IntN(5); {
		case n < 2 || len(oracle) == 0:
			q.push(i)
			oracle = append(oracle, i)
		case n < 4:
			if got := q.pop(); got != oracle[0] {
				t.Fatalf("popped %d, want %d", got, oracle[0])
			}
			oracle = oracle[1:]
		case i%100 == 0:
			q.keep(func(n int) bool { return n%3 != 0 })
			oracle = slices.DeleteFunc(oracle, func(n int) bool { return n%3 == 0 })
		default:
			q.unpop(i)
			oracle = slices.Insert(oracle, 0, i)
		}
		if q.len() != len(oracle) {
			t.Fatalf("%d are in the queue, want %d", q.len(), len(oracle))
		}
	}
}
