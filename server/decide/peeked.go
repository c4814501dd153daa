package decide

import (
	"sync"

	"github.com/headgate/headgate"
)

// Peeked remembers the rules that callers of Envoy's protocol peek at. Whoever peeks before and
// takes afterwards reports what was used, as Envoy does with apply_on_stream_done: such a request
// must be charged even if it does not fit, or the limit would never be reached. So if a request is
// denied that only takes, each part as many units as it says itself, and callers peek at every
// limit that binds it, then it is charged as if it were Independent. It is safe for concurrent use.
type Peeked struct{ rules sync.Map } // by the names of rules, which the policy has

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

// reports says whether the request, which was carried out, is a report that was denied.
func (p *Parts) reports() bool {
	if p.Peeked == nil {
		return false
	}
	p.Peeked.note(p.batches[headgate.OpPeek].ask.Checks)
	takes := &p.batches[headgate.OpTake]
	if !p.Each || len(takes.ask.Checks) == 0 || headgate.NewVerdict(takes.decisions).Allowed {
		return false
	}
	for i := range p.List {
		if p.List[i].Op != headgate.OpTake || p.List[i].TurnsAway() {
			return false
		}
	}
	for i := range takes.ask.Checks {
		if _, known := p.Peeked.rules.Load(takes.ask.Checks[i].Rule.Name()); !known {
			return false
		}
	}
	return true
}
