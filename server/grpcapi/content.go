package grpcapi

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// maxAt is the latest time that is accepted, in microseconds since 1970: integers up to it fit a
// float64 exactly, as in many languages.
const maxAt = 1 << 53

// ruleCache avoids compiling a rule again for every check that brings it. Its keys are rules in
// their wire form.
type ruleCache struct {
	mu    sync.RWMutex
	rules map[string]*headgate.Rule
}

// The bounds of the cache. When it is full, all rules are dropped, and those in use are compiled
// again.
const (
	maxCachedRules = 4096
	// maxCachedRule is the maximum size of a cached rule, in bytes: about sixteen limits with time
	// zones.
	maxCachedRule = 1 << 10
)

// of returns the rule that text encodes. The error wraps [wire.ErrWire], or is an
// [*headgate.InvalidError].
func (c *ruleCache) of(text string) (*headgate.Rule, error) {
	c.mu.RLock()
	rule := c.rules[text]
	c.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	m := new(headgatev1.Rule)
	if err := proto.Unmarshal([]byte(text), m); err != nil {
		return nil, wire.ErrWire
	}
	rule, err := content.Rule(m)
	if err != nil || len(text) > maxCachedRule {
		return rule, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == nil || len(c.rules) >= maxCachedRules {
		c.rules = make(map[string]*headgate.Rule)
	}
	c.rules[string([]byte(text))] = rule // a copy, which does not keep the whole message
	return rule, nil
}

// read reads the checks of a message.
func (s *Store) read(t *take, checks []*headgatev1.StoreCheck) {
	for _, m := range checks {
		var rule *headgate.Rule
		var err error
		if m.GetRule() != nil {
			// Usually these are the bytes that the caller has sent, but other protobuf libraries may encode
			// a rule differently.
			text, marshal := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetRule())
			if marshal != nil {
				text = nil
			}
			rule, err = s.rules.of(string(text))
		}
		t.addCheck(rule, err, content.Check(m), int64(m.GetOnError()))
	}
}

// addCheck adds a check, and the faults that [store.Validate] does not look for.
func (t *take) addCheck(rule *headgate.Rule, err error, c headgate.Check, onError int64) {
	i := len(t.ask.Checks) + t.unread
	if i >= headgate.MaxChecks {
		t.unread++
		return
	}
	at := func(name string) decide.Place { return decide.Place{List: "checks", Index: i + 1, Name: name} }
	switch {
	case err != nil:
		t.faults.AddError(at("rule"), false, err)
	case rule == nil:
		t.faults.Add(decide.OutOfRange, at("rule"), "is missing")
	}
	if c.At < 0 || c.At > maxAt {
		t.faults.Add(decide.OutOfRange, at("at"), "is %d, must be 1 to %d: microseconds since 1970", c.At, int64(maxAt))
	}
	if c.Factor < 0 || c.Factor > headgate.MaxCount {
		t.faults.Add(decide.OutOfRange, at("factor"), "is %d, must be 1 to %d", c.Factor, int64(headgate.MaxCount))
	}
	if onError < 0 || onError > int64(headgate.OnErrorLocal) {
		t.faults.Add(decide.OutOfRange, at("on_error"), "is %d, which is none", onError)
	} else {
		c.OnError = headgate.OnError(onError)
	}
	c.Rule = rule
	t.ask.Checks = append(t.ask.Checks, c)
}

// readTerms reads terms and adds their faults.
func (t *take) readTerms(m *headgatev1.Terms) headgate.Terms {
	if n := len(m.GetId()); n > headgate.MaxID {
		t.faults.Add(decide.OutOfRange, decide.Place{List: "terms", Name: "id"}, "has %d bytes, must have at most %d", n, headgate.MaxID)
	}
	if most := headgate.MaxTerm.Milliseconds(); m.GetLifetimeMs() < 0 || m.GetLifetimeMs() > most {
		t.faults.Add(decide.OutOfRange, decide.Place{List: "terms", Name: "lifetime_ms"}, "is %d, must be 1 to %d", m.GetLifetimeMs(), most)
		return headgate.Terms{}
	}
	return headgate.Terms{ID: string(m.GetId()), For: time.Duration(m.GetLifetimeMs()) * time.Millisecond}
}

// newDecisions returns the decisions for callers of the store. They omit the rule and the limit,
// which such callers know.
func newDecisions(decisions []headgate.Decision) []*headgatev1.StoreDecision {
	if len(decisions) == 0 {
		return nil
	}
	all := make([]headgatev1.StoreDecision, len(decisions))
	out := make([]*headgatev1.StoreDecision, len(decisions))
	for i := range decisions {
		d, to := &decisions[i], &all[i]
		to.Allowed, to.Remaining, to.At = d.Allowed, d.Remaining, int64(d.At)
		to.RetryAfterUs, to.ResetAfterUs, to.DelayUs = content.Micros(d.RetryAfter), content.Micros(d.ResetAfter), content.Micros(d.Delay)
		to.Source, to.Check = headgatev1.Source(d.Source), int32(d.Check)
		out[i] = to
	}
	return out
}
