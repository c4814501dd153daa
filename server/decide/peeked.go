package decide

import (
	"sync"

	"github.com/headgate/headgate"
)

// Peeked remembers the rules that callers of Envoy's protocol peek at, to recognise requests that
// report what was used, as Envoy's do with apply_on_stream_done: the caller peeks before the work
// and takes afterwards. Without Independent, a report that does not fit is refused as a whole, and
// nothing of what was used is counted. So a request counts as such a report if it is denied, only
// takes, each part as many units as it says itself, and callers peek at every limit that binds it.
// That is a guess, good enough to warn and not to decide by. Peeked is safe for concurrent use.
type Peeked struct {
	// Refused is called, with the name of a rule, for each request that looks like a report and
	// was refused. It must be quick. It may be nil.
	Refused func(rule string)

	rules sync.Map // The keys are names of rules of the policy.
}

// note remembers the rules of checks that are peeked at. Limits that came with a descriptor have
// one name for all, which tells nothing.
func (p *Peeked) note(checks []headgate.Check) {
	for i := range checks {
		if name := checks[i].Rule.Name(); name != BroughtRule {
			if _, known := p.rules.Load(name); !known {
				p.rules.Store(name, true)
			}
		}
	}
}

// noteReport records the rules that a request has peeked at, after it was carried out. It calls
// Refused if the request looks like a report and was refused.
func (p *Parts) noteReport() {
	if p.Peeked == nil || p.Peeked.Refused == nil {
		return
	}
	p.Peeked.note(p.batches[headgate.OpPeek].ask.Checks)
	takes := &p.batches[headgate.OpTake]
	if !p.Each || len(takes.ask.Checks) == 0 || headgate.NewVerdict(takes.decisions).Allowed {
		return
	}
	for i := range p.List {
		if p.List[i].Op != headgate.OpTake || p.List[i].TurnsAway() {
			return
		}
	}
	for i := range takes.ask.Checks {
		if _, known := p.Peeked.rules.Load(takes.ask.Checks[i].Rule.Name()); !known {
			return
		}
	}
	p.Peeked.Refused(takes.ask.Checks[0].Rule.Name())
}
