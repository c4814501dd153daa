package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

func (s *Server) get() *scratch { return s.pool.Get().(*scratch) }

// put returns the scratch to the pool without the call's texts, which it must not
// keep alive.
func (s *Server) put(sc *scratch) {
	clear(sc.facts[:cap(sc.facts)])
	clear(sc.checks)
	s.pool.Put(sc)
}

// enter lets a call in or returns what it ends with. The passage is to be told of
// its end; nil if nothing depends on that.
func (s *Server) enter(c *Call) (*passage, error) {
	cost := int64(1)
	if s.cost != nil {
		if cost = s.cost(c); cost == 0 {
			return nil, nil
		}
	}
	sc := s.get()
	p, err := s.decide(c, sc, cost)
	s.put(sc)
	return p, err
}

func (s *Server) decide(c *Call, sc *scratch, cost int64) (*passage, error) {
	if cost < 0 || cost > headgate.MaxCount {
		return nil, s.broken(c, costError("Cost", c, cost))
	}
	facts := s.find(c, sc)
	if err := s.bind(c, sc, &s.calls, facts, cost); err != nil {
		return nil, err
	}
	if s.set != nil {
		outcome, err := s.set.Decide(facts, cost, sc.checks)
		switch {
		case err != nil:
			return nil, s.broken(c, err)
		case outcome.Denied != nil:
			return nil, errForbidden()
		case outcome.Allowed == nil:
			sc.checks = outcome.Checks
		}
	}
	if len(sc.checks) == 0 {
		return nil, nil
	}
	reservation, decisions, err := s.take(c.ctx, sc)
	if err != nil {
		return nil, s.undecided(c, sc.checks, err)
	}
	sc.decisions = decisions
	v := headgate.NewVerdict(decisions)
	if err := s.wait(c, sc, &v, reservation); err != nil {
		return nil, err
	}
	if !v.Allowed {
		return nil, s.deny(c, &v)
	}
	s.tell(c, &v)
	return s.newPassage(c, sc.checks, decisions, reservation), nil
}

// wait holds an admitted call for the verdict's delay, if there is one.
func (s *Server) wait(c *Call, sc *scratch, v *headgate.Verdict, reservation headgate.Reservation) error {
	if v.Delay == 0 {
		return nil
	}
	release := func(ctx context.Context, checks []headgate.Check) { s.release(ctx, c, checks, reservation) }
	if err := httplimit.Hold(c.ctx, v, sc.checks, s.maxDelay, release); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// find returns the facts of the call. They stand in the scratch, unless the
// caller's Describe returns a slice of its own.
func (s *Server) find(c *Call, sc *scratch) policy.Descriptor {
	sc.facts = sc.facts[:0]
	for _, f := range s.facts {
		if v := f.Find(&s.reader, c); v != "" {
			sc.facts = append(sc.facts, policy.Entry{Name: f.Name, Value: v})
		}
	}
	if s.describe != nil {
		return s.describe(c, sc.facts)
	}
	return sc.facts
}

// bind fills in the checks of the limits, or returns what a call without an identity,
// or without a clear one, ends with.
func (s *Server) bind(c *Call, sc *scratch, limits *compiled, facts policy.Descriptor, cost int64) error {
	sc.checks = sc.checks[:0]
	if s.wantsKey && s.reader.unclear(c) {
		if s.hooks.Missing != nil {
			s.hooks.Missing(c, factAPIKey.Name)
		}
		return errUnclear()
	}
	for i := range limits.bindings {
		l := &limits.bindings[i]
		entry := l.Key.Lacks(facts)
		if entry == "" {
			continue
		}
		if s.hooks.Missing != nil {
			s.hooks.Missing(c, entry)
		}
		switch s.missing {
		case PassMissing:
			// The rules of a policy do not bind a call that lacks an entry.
			continue
		case CountMissingByIP:
			if key := s.fallbackKey(facts); key != "" {
				for _, rule := range l.Rules {
					sc.checks = append(sc.checks, headgate.Check{Rule: rule, Key: key, Cost: cost})
				}
				continue
			}
		}
		return errNobody(entry, s.reader.apiKeys)
	}
	if len(limits.bindings) == 0 {
		return nil
	}
	var err error
	if sc.checks, err = limits.set.Match(facts, cost, sc.checks); err != nil {
		return s.broken(c, err)
	}
	return nil
}

// fallbackMark stands before the address in the key of a call that has no identity
// of its own, so that it meets no user or tenant by that name: no metadata can hold
// it.
const fallbackMark = "\x1fip:"

// fallbackKey returns the key of a call that is counted by its address, or "".
func (s *Server) fallbackKey(facts policy.Descriptor) string {
	text, _ := facts.Get(factIP.Name)
	a, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	if p, err := a.Prefix(s.ipv6Bits); a.Is6() && s.ipv6Bits < 128 && err == nil {
		return fallbackMark + p.String()
	}
	return fallbackMark + a.String()
}

// undecided deals with a call whose checks the store had no answer for: it returns
// what the call ends with, or nil if it is let in.
func (s *Server) undecided(c *Call, checks []headgate.Check, err error) error {
	switch {
	case errors.Is(err, headgate.ErrInvalid):
		return s.broken(c, err)
	case c.ctx.Err() != nil:
		// A client that hangs up while the store is asked must not get past the
		// limit by it, even if failures are open.
		return status.FromContextError(c.ctx.Err()).Err()
	}
	s.failed(c, err)
	if s.failure == FailClosed || httplimit.FailsClosed(checks) {
		return errUnavailable()
	}
	if s.unenforced != "" {
		s.setHeader(c, s.unenforced, "store-unavailable")
	}
	return nil
}

// broken is what a call ends with whose check the program itself made wrong.
func (s *Server) broken(c *Call, err error) error {
	s.failed(c, err)
	return errBroken()
}

func costError(option string, c *Call, cost int64) error {
	return fmt.Errorf("%w: the function of %s returned %d for %s, must be 0 to %d", headgate.ErrInvalid, option, cost, c.Method, headgate.MaxCount)
}

func (s *Server) failed(c *Call, err error) {
	if s.hooks.Failed != nil {
		s.hooks.Failed(c, err)
	}
}

// deny is what a denied call ends with.
func (s *Server) deny(c *Call, v *headgate.Verdict) error {
	s.setTrailer(c, v)
	if s.hooks.Denied != nil {
		s.hooks.Denied(c, *v)
	}
	return s.denied(c, *v)
}
