package fallback

import (
	"sync/atomic"
)

// counts are what a fallback counts since it was made.
type counts struct {
	failures, refused, open, local       atomic.Int64
	opened, probes, probesFailed, handed atomic.Int64
}

// Stats says what a [Layer] is doing and what it has done. Counts began when the layer was
// made, unless their comments say otherwise.
type Stats struct {
	State State
	// Cause is the error that requests get while the primary is not asked. It is nil unless
	// State is Open.
	Cause error
	// Nodes is how many nodes share the primary: the last count, or a higher one shortly
	// before it.
	Nodes int64
	// NodesError is why the last attempt to count the nodes failed. It is nil if they were
	// counted, or if the primary is no [Members].
	NodesError error
	// Learning says that the primary has lost its data, so that requests must fit this
	// node's share as well.
	Learning bool
	// Failures counts the calls to the primary that failed, except those whose caller had
	// given up.
	Failures int64
	// Refused, Open and Local count the requests that were decided without the primary: those
	// that got an error, those that were let in uncounted, and those that this node's share
	// decided.
	Refused, Open, Local int64
	// Opened is how often the breaker has opened.
	Opened int64
	// Probes counts the probes that an open breaker has sent, and ProbesFailed those of them
	// that failed.
	Probes, ProbesFailed int64
	// Debts is for how many pairs of rule and key units are still to be charged to the
	// primary. DebtsDropped counts how often there was no room for another pair.
	Debts        int
	DebtsDropped int64
	// HandedBack is the number of units that were admitted locally and charged to the primary
	// when it was back.
	HandedBack int64
}

// Nodes returns the same number as [Stats.Nodes], at less cost: for layers that need it for
// each request.
func (f *Layer) Nodes() int64 { return f.shares.Load().nodes }

// Stats returns what the layer is doing.
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
		signal(f.keeper.roused)
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
