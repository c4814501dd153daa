package gateway

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/policy"
)

// settlement is the result of settling a reservation, for the metrics.
type settlement uint8

const (
	settled    settlement = iota
	asEstimate            // the actual cost is not known, so the estimate stays
	late                  // the reservation had expired, and the difference was charged
	unsettled             // the store did not settle it

	settlements // the number of them
)

var settlementNames = [settlements]string{"settled", "estimated", "late", "failed"}

// settling says what is settled, and how.
type settling struct {
	rules   map[string]*measure
	headers []costHeader
	// told says that the log has reported an answer without its cost.
	told *atomic.Bool
}

// measure is a Settle and the place of what it measures.
type measure struct {
	Settle
	header int // index in settling.headers; -1 if bytes are measured
}

// costHeader is a header that says what a request has cost.
type costHeader struct {
	name string
	keep bool
}

// reported is the value of such a header.
type reported struct {
	amount int64
	known  bool
}

func newSettling(all []Settle) settling {
	s := settling{told: new(atomic.Bool)}
	for _, one := range all {
		m := &measure{one, -1}
		if one.Header != "" {
			m.header = slices.IndexFunc(s.headers, func(h costHeader) bool { return h.name == one.Header })
			if m.header < 0 {
				m.header = len(s.headers)
				s.headers = append(s.headers, costHeader{one.Header, one.Keep})
			}
		}
		if s.rules == nil {
			s.rules = make(map[string]*measure)
		}
		s.rules[one.Rule] = m
	}
	return s
}

// lacking returns the names of settled rules that the policy does not have.
func (s *settling) lacking(set *policy.Set) (names []string) {
	for name := range s.rules {
		if set.Rule(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// estimate sets the cost of checks that are settled later to their estimates. It reports whether
// there are any.
func (s *settling) estimate(checks []headgate.Check) (found bool) {
	if s.rules == nil {
		return false
	}
	for i := range checks {
		c := &checks[i]
		if m := s.rules[c.Rule.Name()]; m != nil {
			c.Cost = min(c.Units()*m.Estimate, headgate.MaxCount)
			found = true
		}
	}
	return found
}

// cost converts an amount to units.
func (m *measure) cost(amount int64) int64 {
	units := amount / m.Per
	if amount%m.Per != 0 {
		units++
	}
	return min(units, headgate.MaxCount)
}

// hear reads the costs in headers or trailers of the upstream server's answer.
func (x *exchange) hear(h http.Header) {
	x.heard = true
	for i := range x.costs {
		header := &x.g.settling.headers[i]
		lines, there := h[header.name]
		if !there {
			continue
		}
		if len(lines) == 1 {
			if n, ok := amount(lines[0]); ok {
				x.costs[i] = reported{n, true}
			}
		}
		if !header.keep {
			delete(h, header.name)
		}
	}
}

// amount parses a whole number. A number that is too large becomes a large one.
func amount(text string) (n int64, ok bool) {
	u, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return math.MaxInt64, true
	case err != nil:
		return 0, false
	}
	return int64(u), true
}

// settle settles the cost of a request that has ended with the given status and number of bytes
// sent, and refunds what is not charged.
func (x *exchange) settle(status int, sent int64) {
	c := &x.charge
	if !c.Unsettled() {
		return
	}
	ctx := x.r.Context()
	if c.Reservation.ID == "" {
		if set := x.plan.policy.Set; set.Awaits(c.Checks) {
			if err := c.Refund(ctx, admission.Uncharged(set, c.Charged(), status)); err != nil {
				x.g.options.Logger.LogAttrs(ctx, slog.LevelError, "what a request took could not be given back", slog.Any("error", err))
			}
		}
		return
	}
	units, result := x.units(status, sent)
	isLate, err := c.Settle(ctx, units)
	switch {
	case err != nil:
		result = unsettled
		x.g.options.Logger.LogAttrs(ctx, slog.LevelError, "what a request has cost could not be settled", slog.Any("error", err))
	case isLate:
		result = late
	}
	x.g.counts.settlements[result].Add(1)
}

// units returns the actual costs of the reservation's checks.
func (x *exchange) units(status int, sent int64) ([]int64, settlement) {
	r, result := &x.charge.Reservation, settled
	units := make([]int64, len(r.Checks))
	for i := range r.Checks {
		c := &r.Checks[i]
		units[i] = c.Units()
		if m := x.g.settling.rules[c.Rule.Name()]; m != nil {
			what := reported{sent, true}
			if m.header >= 0 {
				what = x.costs[m.header]
			}
			if what.known {
				units[i] = r.Units(m.cost(what.amount))[i]
			} else if result = asEstimate; x.heard && x.outcome != clientGone {
				x.unsaid(m)
			}
		}
		if status != 0 && !x.plan.policy.Charged(c, status) {
			units[i] = 0
		}
	}
	return units, result
}

// unsaid logs, once, that an answer does not say its cost.
func (x *exchange) unsaid(m *measure) {
	if x.g.settling.told.CompareAndSwap(false, true) {
		x.g.options.Logger.LogAttrs(x.r.Context(), slog.LevelWarn, "an answer does not say what the request has cost; the estimate stays, and further ones are only counted",
			slog.String("rule", m.Rule), slog.String("header", m.Header), slog.String("path", x.r.URL.Path), slog.Int("status", x.w.status))
	}
}
