package llm

import (
	"sync"

	"github.com/headgate/headgate"
)

// Habits remembers what part of the units that they declare calls come to use: for each rule that
// reserves what is typical, by its key and the model. The memory is bounded, and of the process. The
// zero Habits is empty, and ready for use. It is safe for concurrent use.
type Habits struct {
	mu sync.Mutex // guards what follows
	// recent has the habits of which calls have come lately. When it is full, it becomes earlier,
	// and those of the former earlier that nobody has asked for are forgotten.
	recent, earlier map[habitKey]*habit
}

// The bounds of [Habits].
const (
	// maxHabits is how many habits one generation has. One takes up to 100 bytes besides its key.
	maxHabits = 10_000
	// parts is into how many parts the declared units are divided, and leastParts how many of them
	// are reserved at least. So calls use at most parts/leastParts = 10 times what is reserved for
	// them.
	parts, leastParts = 20, 2
	// enough is of how many calls a habit is made at least, and full the number at which older calls
	// begin to count less. A habit covers quantile of a hundred calls.
	enough, full = 20, 400
	quantile     = 95
)

// habitKey says whose habit it is. The key is that of the rule's counter.
type habitKey struct{ rule, key, model string }

// habit counts calls by how many of the parts they have used, rounded up.
type habit struct {
	calls [parts]uint16
	total uint16
}

// of returns a habit, or nil if there is none.
func (h *Habits) of(k habitKey) *habit {
	one := h.recent[k]
	if one == nil {
		if one = h.earlier[k]; one != nil {
			h.put(k, one)
		}
	}
	return one
}

func (h *Habits) put(k habitKey, one *habit) {
	if len(h.recent) >= maxHabits {
		h.recent, h.earlier = nil, h.recent
	}
	if h.recent == nil {
		h.recent = make(map[habitKey]*habit)
	}
	h.recent[k] = one
}

// typical returns how many of the declared units a call is likely to use. Without a habit, these are
// all of them.
func (h *Habits) typical(k habitKey, declared int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(k)
	if one == nil || one.total < enough {
		return declared
	}
	need, sum, part := (int(one.total)*quantile+99)/100, 0, 0
	for ; part < parts-1; part++ {
		if sum += int(one.calls[part]); sum >= need {
			break
		}
	}
	return portion(declared, max(part+1, leastParts))
}

// portion is so many of the parts of the declared units, rounded up.
func portion(declared int64, n int) int64 { return (declared*int64(n) + parts - 1) / parts }

// learn takes note of a call that has declared so many units and has used so many of them.
func (h *Habits) learn(k habitKey, declared, used int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(k)
	if one == nil {
		one = new(habit)
		h.put(k, one)
	}
	if one.total >= full {
		one.total = 0
		for i := range one.calls {
			one.calls[i] /= 2
			one.total += one.calls[i]
		}
	}
	one.calls[min(max((used*parts+declared-1)/declared, 1), parts)-1]++
	one.total++
}

// declared is what a call has declared under a rule that reserves what is typical.
type declared struct {
	key   habitKey
	units int64
}

// Reserve makes the checks of the call those that are to be reserved: under rules that reserve what
// is typical, that is less than the call declares.
func (c *Passage) Reserve(h *Habits, checks []headgate.Check) {
	for i := range checks {
		check := &checks[i]
		if rule := c.set.Rule(check.Rule.Name()); rule != nil && rule.Reservation.Typical {
			one := declared{habitKey{rule.Name, check.Key, c.Usage.Model}, check.Units()}
			c.habits, c.declared = h, append(c.declared, one)
			check.Cost = h.typical(one.key, one.units)
		}
	}
}

// learn notes what a call has used under the rules that reserve what is typical.
func (c *Passage) learn(r *headgate.Reservation, units []int64) {
	for _, one := range c.declared {
		for i := range r.Checks {
			if check := &r.Checks[i]; check.Rule.Name() == one.key.rule && check.Key == one.key.key && units[i] > 0 {
				c.habits.learn(one.key, one.units, units[i])
			}
		}
	}
}
