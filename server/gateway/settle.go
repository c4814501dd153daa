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
	"github.com/headgate/headgate/config/gatewayfile"
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
	// warned says that the log has reported an answer without its cost.
	warned *atomic.Bool
}

// measure is a Settle and the place of what it measures.
type measure struct {
	gatewayfile.Settle
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

func newSettling(all []gatewayfile.Settle) settling {
	s := settling{warned: new(atomic.Bool)}
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
			units := c.Units()
			c.Cost = headgate.MaxCount
			if m.Estimate <= headgate.MaxCount/units {
				c.Cost = units * m.Estimate
			}
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

// costs is the last stage of an exchange: what the request has cost, as the upstream server says, and
// its settlement.
type costs struct {
	id       *identified
	d        *decision
	reported []reported // for each of settling.headers
	answered bool       // the upstream server has answered
}

// read reads the costs in headers or trailers of the upstream server's answer.
func (c *costs) read(h http.Header) {
	c.answered = true
	for i := range c.reported {
		header := &c.id.g.settling.headers[i]
		lines, there := h[header.name]
		if !there {
			continue
		}
		if len(lines) == 1 {
			if n, ok := amount(lines[0]); ok {
				c.reported[i] = reported{n, true}
			}
		}
		if !header.keep {
			delete(h, header.name)
		}
	}
}

// withhold removes the costs that clients must not see.
func (c *costs) withhold(h http.Header) {
	for i := range c.reported {
		if header := &c.id.g.settling.headers[i]; !header.keep {
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

// settle settles the cost of a request that has ended with the given outcome, status and number of
// bytes sent, and refunds what is not charged.
func (c *costs) settle(came outcome, status int, sent int64) {
	charge, id := &c.d.charge, c.id
	if !charge.Unsettled() {
		return
	}
	ctx, logger := id.r.Context(), id.g.options.Logger
	if charge.Reservation.ID == "" {
		if set := id.plan.policy.Set; set.Awaits(charge.Checks) {
			if err := charge.Refund(ctx, admission.Uncharged(set, charge.Charged(), status)); err != nil {
				logger.LogAttrs(ctx, slog.LevelError, "units could not be refunded", slog.Any("error", err))
			}
		}
		return
	}
	var units []int64
	var unreported *measure
	result := settled
	known := false // that the provider has said what a call of a model has used
	if id.llm.call != nil {
		if units, known = id.llm.call.Settle(&charge.Reservation, status); !known {
			result = asEstimate
		}
	} else {
		units, unreported = c.units(status, sent)
	}
	if unreported != nil {
		result = asEstimate
		if c.answered && came != clientGone && id.g.settling.warned.CompareAndSwap(false, true) {
			logger.LogAttrs(ctx, slog.LevelWarn, "an answer does not report the cost of its request; the estimate stays charged, and further answers are only counted",
				slog.String("rule", unreported.Rule), slog.String("header", unreported.Header), slog.String("path", id.r.URL.Path), slog.Int("status", status))
		}
	}
	isLate, err := charge.Settle(ctx, units)
	switch {
	case err != nil:
		result = unsettled
		logger.LogAttrs(ctx, slog.LevelError, "the cost of a request could not be settled", slog.Any("error", err))
	case isLate:
		result = late
	}
	if err == nil && id.llm.call != nil && !id.llm.call.Rejected {
		id.g.decider.Spent(ctx, id.llm.call.Spending(&charge.Reservation, units, known, isLate))
	}
	id.g.counts.settlements[result].Add(1)
}

// units returns the actual costs of the reservation's checks, and a measure whose cost was not
// reported, if there is one.
func (c *costs) units(status int, sent int64) (units []int64, unreported *measure) {
	r := &c.d.charge.Reservation
	units = make([]int64, len(r.Checks))
	for i := range r.Checks {
		check := &r.Checks[i]
		units[i] = check.Units()
		if m := c.id.g.settling.rules[check.Rule.Name()]; m != nil {
			what := reported{sent, true}
			if m.header >= 0 {
				what = c.reported[m.header]
			}
			if what.known {
				units[i] = r.Units(m.cost(what.amount))[i]
			} else {
				unreported = m
			}
		}
		if status != 0 && !c.id.plan.policy.Charged(check, status) {
			units[i] = 0
		}
	}
	return units, unreported
}
