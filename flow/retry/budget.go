package retry

import "sync"

// Budget bounds retries to a share of calls: whatever happens, there are at most
// share × calls + floor of them. It is safe for concurrent use; make one with [NewBudget].
type Budget struct {
	share, floor float64

	mu   sync.Mutex // guards left
	left float64
}

// The defaults of budgets.
const (
	DefaultShare = 0.1
	DefaultFloor = 10
)

// hoard is how many retries a budget saves up at most, beyond its floor: somebody who fails
// after a long time of good answers must not be met with all that was saved since.
const hoard = 100

// NewBudget returns a budget of so many retries for each call, 0 to 1, and a floor of retries
// that there may be besides, 0 or more.
func NewBudget(share float64, floor int) *Budget {
	return &Budget{share: share, floor: float64(floor), left: float64(floor)}
}

// Call notes a call, which pays its share in.
func (b *Budget) Call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+b.share, b.floor+hoard)
}

// Take charges a retry, when it is decided on and not when it is sent: those that wait count
// already. It reports false if there is nothing left.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Shares are added up one by one: what is missing for rounding is there.
	if b.left < 1-1e-9 {
		return false
	}
	b.left--
	return true
}

// GiveBack undoes a Take of what is not sent again.
func (b *Budget) GiveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left++
}
