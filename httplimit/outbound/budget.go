package outbound

import "sync"

// budget bounds retries to a share of calls: whatever happens, there are at most
// share × calls + floor of them. It is safe for concurrent use.
type budget struct {
	share, floor float64

	mu   sync.Mutex // guards left
	left float64
}

// hoard is how many retries a budget saves up at most, beyond its floor: a partner that
// fails after a long time of good answers must not be met with all that was saved since.
const hoard = 100

func newBudget(share float64, floor int) *budget {
	return &budget{share: share, floor: float64(floor), left: float64(floor)}
}

// call notes a call, which pays its share in.
func (b *budget) call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+b.share, b.floor+hoard)
}

// take charges a retry, when it is decided on and not when it is sent. It reports false if
// there is nothing left.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Shares are added up one by one: what is missing for rounding is there.
	if b.left < 1-1e-9 {
		return false
	}
	b.left--
	return true
}

// giveBack undoes a take of what is not sent again.
func (b *budget) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left++
}
