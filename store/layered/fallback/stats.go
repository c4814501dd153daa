package fallback

import (
	"sync/atomic"
)

// counts are what a fallback counts since it was made.
type counts struct {
	failures, refused, open, local       atomic.Int64
	opened, probes, probesFailed, handed atomic.Int64
}

// Stats is what a [Layer] is doing. Numbers are since it was made, unless they
// say otherwise.
type Stats struct {
	State State
	// Cause is what requests are told while the primary is not asked; nil unless
	// State is Open.
	Cause error
	// Nodes is how many share the primary: as they were last counted, or more if
	// there were more just before.
	Nodes int64
	// NodesError is why the nodes could not be counted the last time; nil if they
	// were, or if the primary is no [Members].
	NodesError error
	// Learning says that the primary has lost its data, and requests must fit this
	// node's share as well.
	Learning bool
	// Failures are calls to the primary that failed although it was asked, but for
	// those whose caller was gone.
	Failures int64
	// Refused, Open and Local are requests that were decided without the primary:
	// by an error, by nobody, by this node's share.
	Refused, Open, Local int64
	// Opened is how often the breaker has opened.
	Opened int64
	// Probes are those that an open breaker has sent, and ProbesFailed those that
	// were not answered.
	Probes, ProbesFailed int64
	// Debts is for how many pairs of rule and key something is still to be charged
	// to the primary, and DebtsDropped how often there was no place for another.
	Debts        int
	DebtsDropped int64
	// HandedBack is the number of units that were admitted locally, and charged to
	// the primary after it was back.
	HandedBack int64
}

// Nodes is how many share the primary, as [Stats] has it: for layers that ask for each
// request.
func (f *Layer) Nodes() int64 { return f.shares.Load().nodes }

// Stats returns what the fallback is doing.
func (f *Layer) Stats() Stats {
	s := Stats{
		State: stateOf(f.breaker.word.Load()), Nodes: f.shares.Load().nodes, Learning: f.learning.Load(),
		Failures: f.counts.failures.Load(), Refused: f.counts.refused.Load(), Open: f.counts.open.Load(), Local: f.counts.local.Load(),
		Opened: f.counts.opened.Load(), Probes: f.counts.probes.Load(), ProbesFailed: f.counts.probesFailed.Load(),
		Debts: int(f.debts.size.Load()), DebtsDropped: f.debts.dropped.Load(), HandedBack: f.counts.handed.Load(),
	}
	if cause := f.breaker.refusal.Load(); s.State == Open && cause != nil {
		s.Cause = *cause
	}
	if err := f.keeper.nodesError.Load(); err != nil {
		s.NodesError = *err
	}
	return s
}

// stateChanged follows a change of the breaker's state.
func (f *Layer) stateChanged() {
	if stateOf(f.breaker.word.Load()) == Open {
		f.counts.opened.Add(1)
		f.keeper.rouse()
	}
	f.announce()
}

// announce calls Changed if anything has changed.
func (f *Layer) announce() {
	f.telling.Lock()
	defer f.telling.Unlock()
	was, is := f.told, f.Stats()
	f.told = is
	if was.State != is.State || was.Learning != is.Learning || (was.NodesError == nil) != (is.NodesError == nil) {
		f.options.Changed(was, is)
	}
}
