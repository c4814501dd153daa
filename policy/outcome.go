package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// MaxStatuses is how many entries one list of [Statuses] may have.
const MaxStatuses = 100

// Statuses are HTTP statuses or, for other protocols, the corresponding HTTP statuses.
type Statuses []StatusRange

// StatusRange is the statuses First to Last, both from 100 to 599.
type StatusRange struct{ First, Last int }

// ParseStatus reads "304", or "5xx" for 500 to 599.
func ParseStatus(s string) (StatusRange, error) {
	if class, ok := strings.CutSuffix(s, "xx"); ok && len(class) == 1 && class[0] >= '1' && class[0] <= '5' {
		first := int(class[0]-'0') * 100
		return StatusRange{first, first + 99}, nil
	}
	n, err := strconv.Atoi(s)
	r := StatusRange{n, n}
	if err != nil || !r.valid() {
		return StatusRange{}, headgate.Invalid("", "status", "status %q is not a number from 100 to 599 or a class from 1xx to 5xx", s)
	}
	return r, nil
}

func (r StatusRange) valid() bool { return r.First >= 100 && r.First <= r.Last && r.Last <= 599 }

// String writes the statuses as [ParseStatus] reads them, or as "400-404".
func (r StatusRange) String() string {
	switch {
	case r.First == r.Last:
		return strconv.Itoa(r.First)
	case r.First%100 == 0 && r.Last == r.First+99:
		return strconv.Itoa(r.First/100) + "xx"
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Has reports whether the status is one of them.
func (s Statuses) Has(status int) bool {
	return slices.ContainsFunc(s, func(r StatusRange) bool { return r.First <= status && status <= r.Last })
}

// String writes the list, such as "[304, 5xx]".
func (s Statuses) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = r.String()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (s Statuses) check(field string, bad func(field, format string, args ...any)) {
	if len(s) > MaxStatuses {
		bad(field, "there are %d statuses, must be at most %d", len(s), MaxStatuses)
	}
	for i, r := range s {
		if !r.valid() {
			bad(fmt.Sprintf("%s.%d", field, i), "status %v is not from 100 to 599", r)
		}
	}
}

// Reservation says how a rule treats requests whose cost is settled later; see [headgate.Ledger].
type Reservation struct {
	// For is how long they may take to be settled: whole milliseconds up to headgate.MaxTerm. Zero
	// means headgate.DefaultTerm. If several rules bind a request, the shortest counts.
	For time.Duration
	// GiveBack says that the units are given back if nobody settles. Without it the estimate stays
	// charged.
	GiveBack bool
}

func (r *Rule) checkOutcome(bad func(field, format string, args ...any)) {
	r.GiveBackOn.check("give_back_on", bad)
	r.ChargeOn.check("charge_on", bad)
	if len(r.GiveBackOn) > 0 && len(r.ChargeOn) > 0 {
		bad("charge_on", "there are both give_back_on, %v, and charge_on, %v; one says it all", r.GiveBackOn, r.ChargeOn)
	}
	if t := (headgate.Terms{For: r.Reservation.For}); t.Validate() != nil {
		bad("reservation", "reservations are for %v, must be whole milliseconds up to %v", r.Reservation.For, headgate.MaxTerm)
	}
}

// Charged reports whether a request that has ended with the status stays charged
// under the rule.
func (r *Rule) Charged(status int) bool {
	if len(r.ChargeOn) > 0 {
		return r.ChargeOn.Has(status)
	}
	return !r.GiveBackOn.Has(status)
}

// Awaits reports whether the status of the request decides, for any of the checks, whether it stays
// charged. If not, there is no need to wait for the status.
func (s *Set) Awaits(checks []headgate.Check) bool {
	if !s.awaits {
		return false
	}
	for i := range checks {
		if r := s.Rule(checks[i].Rule.Name()); r != nil && len(r.GiveBackOn)+len(r.ChargeOn) > 0 {
			return true
		}
	}
	return false
}

// Charged is [Rule.Charged] for a check: true for rules that are not of the set.
func (s *Set) Charged(c *headgate.Check, status int) bool {
	r := s.Rule(c.Rule.Name())
	return r == nil || r.Charged(status)
}

// Term is how long a reservation of the checks lasts: the shortest Reservation.For of their rules.
func (s *Set) Term(checks []headgate.Check) time.Duration {
	shortest := time.Duration(0)
	for i := range checks {
		if r := s.Rule(checks[i].Rule.Name()); r != nil && r.Reservation.For != 0 && (shortest == 0 || r.Reservation.For < shortest) {
			shortest = r.Reservation.For
		}
	}
	if shortest == 0 {
		return headgate.DefaultTerm
	}
	return shortest
}

// Settle returns, for each check of the reservation, the units to settle it at, for a request of
// the given cost that has ended with the status. A negative cost means the estimate. A status of 0
// means that the status is not known.
func (s *Set) Settle(r *headgate.Reservation, cost int64, status int) []int64 {
	var units []int64
	if cost >= 0 {
		units = r.Units(cost)
	} else {
		units = make([]int64, len(r.Checks))
		for i := range r.Checks {
			units[i] = r.Checks[i].Units()
		}
	}
	for i := range r.Checks {
		if status != 0 && !s.Charged(&r.Checks[i], status) {
			units[i] = 0
		}
	}
	return units
}
