package policy

import (
	"time"

	"github.com/headgate/headgate"
)

// Spending is a call to a language model whose end was settled. Observers are told of it, and it
// has nothing of what was said in the call.
type Spending struct {
	// Set has the prices and the rules.
	Set *Set
	// Used is what the call has used, if Known is set: the provider has said all of it. Otherwise it
	// is an estimate, and has no numbers if nobody knows them any more.
	Used  Usage
	Known bool
	// Reservation is what was reserved for the call, and Units what each of its checks was settled at.
	Reservation *headgate.Reservation
	Units       []int64
	// FirstChunk is how long the first part of a streamed answer took. Zero means that it is not known,
	// or that the answer was no stream.
	FirstChunk time.Duration
}

// OtherModel is the label of the models that are not in the policy.
const OtherModel = "other"

// ModelLabel returns the name of the entry among the set's models that counts for this one, such as
// "gpt-5*", or OtherModel. Unlike names, which clients choose, labels are bounded by the policy.
func (s *Set) ModelLabel(name string) string {
	m := s.longest(name)
	if m.Is != "" {
		m = s.longest(m.Is)
	}
	if m.Name == "" {
		return OtherModel
	}
	return m.Name
}

// Label is the label of the call's model.
func (s *Spending) Label() string { return s.Set.ModelLabel(s.Used.Model) }

// Money returns what the use costs, in millionths of the currency. It is not known for a model without
// a price. More than headgate.MaxCount counts as that.
func (s *Spending) Money() (micros int64, known bool) {
	m := s.Set.Model(s.Used.Model)
	return min(m.price(&s.Used, 1), headgate.MaxCount), m.Priced
}

// By says by what the call was charged, as a label: "usage" that the provider has stated, or "estimate".
func (s *Spending) By() string {
	if s.Known {
		return "usage"
	}
	return "estimate"
}

// Amount returns units of what is counted in tokens, or in the currency if it is money.
func (s *Set) Amount(counts Counted, units int64) float64 {
	if counts == CountMoney {
		return float64(units) * float64(s.MoneyUnit()) / MicroUnits
	}
	return float64(units)
}

// Charged calls visit for each check whose rule counts tokens or money, with what was charged.
func (s *Spending) Charged(visit func(c *headgate.Check, counts Counted, units int64)) {
	for i := range s.Reservation.Checks {
		c := &s.Reservation.Checks[i]
		if rule := s.Set.Rule(c.Rule.Name()); rule != nil && rule.Counts != CountRequests {
			visit(c, rule.Counts, s.Units[i])
		}
	}
}
