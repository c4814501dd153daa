package decide

import (
	"sync"

	"github.com/headgate/headgate"
)

// Peeked detects reports of use that were refused. Envoy, with apply_on_stream_done, peeks before
// the work and takes the units that were used afterwards. Without Independent, such a report is
// refused as a whole if it does not fit, and none of the use is counted.
//
// To recognise reports, Peeked remembers the rules that callers of Envoy's protocol peek at. A
// request counts as a refused report if all of the following hold: it is denied; it only takes;
// each part names its own number of units; and callers peek at every rule that binds it. This is a
// guess: good enough for a warning, but not for a decision.
//
// Peeked is safe for concurrent use.
type Peeked struct {
	// Refused is called, with the name of a rule, for each request that looks like a report and
	// was refused. It must be quick. It may be nil.
	Refused func(rule string)

	rules sync.Map // The keys are names of rules of the policy.
}

// note remembers the rules of checks that are peeked at. It ignores limits that came with a
// descriptor: they all have one name, which identifies none of them.
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
