package retry

import "sync"

// Budget limits retries to a share of calls: there are never more than share × calls + floor of
// them. It is safe for concurrent use. Make one with [NewBudget].
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

// hoard is how many retries a budget saves up at most, in addition to its floor. So a server that
// fails after a long time of good answers does not get all the retries that were saved meanwhile.
const hoard = 100

// NewBudget returns a budget that allows share retries for each call, 0 to 1, and floor retries in
// addition, 0 or more.
func NewBudget(share float64, floor int) *Budget {
	return &Budget{share: share, floor: float64(floor), left: float64(floor)}
}

// Call records a call, which adds the share to the budget.
func (b *Budget) Call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+b.share, b.floor+hoard)
}

// Take charges a retry. Call it when the retry is decided on, not when it is sent, so that retries
// that still wait count too. It returns false if the budget is used up.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Shares are added up one by one, so the sum may be slightly below 1 because of rounding.
	if b.left < 1-1e-9 {
		return false
	}
	b.left--
	return true
}

// GiveBack undoes a Take for a retry that is not sent after all.
func (b *Budget) GiveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left++
}
