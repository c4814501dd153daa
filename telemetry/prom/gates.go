package prom

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy/inprogress"
)

// Gates turns what gates do into metrics. The label gate has the names under which they are
// watched:
//
//	headgate_gate_limit{gate}                      units that may be in progress
//	headgate_gate_in_progress{gate}                units that are
//	headgate_gate_waiting{gate}                    requests that wait
//	headgate_gate_base_seconds{gate}               how long work takes without waiting
//	headgate_gate_pressure{gate}                   0 to 1, where everything is short
//	headgate_gate_admitted_total{gate, class}      requests that were let in
//	headgate_gate_shed_total{gate, class, reason}  requests that were refused
//	headgate_gate_done_total{gate, outcome}        permits that were given back
//
// It is a [prometheus.Collector], to be registered, and safe for concurrent use.
type Gates struct {
	mu  sync.Mutex // guards all
	all map[string]*Gate
}

// NewGates returns a collector that watches nothing yet.
func NewGates() *Gates { return &Gates{all: make(map[string]*Gate)} }

// Gate is a gate that is watched: a [flow.Gate] to be asked in the place of the one behind
// it. Make one with [Gates.Watch].
type Gate struct {
	flow.Gate
	counts *gateCounts
	parts  []any
}

// gateCounts outlive the gate, so that counters never fall.
type gateCounts struct {
	admitted [flow.Classes]atomic.Uint64
	shed     [flow.Classes][flow.Reasons]atomic.Uint64
	done     [flow.Outcomes]atomic.Uint64
}

// Watch returns the gate as one that is watched. Limit, work in progress and the other
// gauges are taken from the parts that have them: the first with a method Limit, Base,
// Pressure or Stats, as the gates of packages permits, adaptive and shed have. Without
// parts that is the gate itself.
//
// A second gate under the same name takes the place of the first one, and goes on with
// its counters. To watch what a gate would do in shadow, have [flow.Shadow] around what
// Watch returns.
func (g *Gates) Watch(name string, gate flow.Gate, parts ...any) *Gate {
	if len(parts) == 0 {
		parts = []any{gate}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &Gate{counts: new(gateCounts), parts: parts}
	if former := g.all[name]; former != nil {
		w.counts = former.counts
	}
	c := w.counts
	w.Gate = flow.Observe(gate, flow.Hooks{
		Admitted: func(_ context.Context, r flow.Request, _ time.Duration) { c.admitted[r.Class.Rank()].Add(1) },
		Rejected: func(_ context.Context, r flow.Request, is *flow.Rejection, _ time.Duration) {
			if int(is.Reason) < flow.Reasons {
				c.shed[r.Class.Rank()][is.Reason].Add(1)
			}
		},
		Done: func(_ flow.Request, outcome flow.Outcome, _ time.Duration) { c.done[outcome].Add(1) },
	})
	g.all[name] = w
	return w
}

// Forget ends the metrics of a gate.
func (g *Gates) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, name)
}

// Stats are the numbers of each gate by its name, as the metrics have them: for whoever shows
// them without Prometheus.
func (g *Gates) Stats() map[string]flow.Stats {
	g.mu.Lock()
	all := maps.Clone(g.all)
	g.mu.Unlock()
	stats := make(map[string]flow.Stats, len(all))
	for name, w := range all {
		stats[name] = w.stats()
	}
	return stats
}

// stats are the numbers of the gate: those of its parts, and what was counted.
func (w *Gate) stats() (s flow.Stats) {
	if p, ok := part[interface{ Stats() flow.Stats }](w.parts); ok {
		s = p.Stats()
	}
	if p, ok := part[interface{ Limit() int64 }](w.parts); ok && s.Limit <= 0 {
		s.Limit = p.Limit()
	}
	s.Admitted, s.Rejected, s.Done = 0, [flow.Reasons]uint64{}, [flow.Outcomes]uint64{}
	for rank := range flow.Classes {
		s.Admitted += w.counts.admitted[rank].Load()
		for reason := range flow.Reasons {
			s.Rejected[reason] += w.counts.shed[rank][reason].Load()
		}
	}
	for outcome := range flow.Outcomes {
		s.Done[outcome] = w.counts.done[outcome].Load()
	}
	return s
}

// Shed is how many requests were refused, by the rank of their class and the reason.
func (w *Gate) Shed() (n [flow.Classes][flow.Reasons]uint64) {
	for rank := range w.counts.shed {
		for reason := range w.counts.shed[rank] {
			n[rank][reason] = w.counts.shed[rank][reason].Load()
		}
	}
	return n
}

var (
	descGateLimit    = prometheus.NewDesc("headgate_gate_limit", "Units that may be in progress at the same time.", []string{"gate"}, nil)
	descGateBusy     = prometheus.NewDesc("headgate_gate_in_progress", "Units that are in progress.", []string{"gate"}, nil)
	descGateWaiting  = prometheus.NewDesc("headgate_gate_waiting", "Requests that wait for a permit.", []string{"gate"}, nil)
	descGateBase     = prometheus.NewDesc("headgate_gate_base_seconds", "How long work takes that does not wait, as the gate estimates it.", []string{"gate"}, nil)
	descGatePressure = prometheus.NewDesc("headgate_gate_pressure", "How short the process is of processor time or memory: 0 to 1.", []string{"gate"}, nil)
	descGateAdmitted = prometheus.NewDesc("headgate_gate_admitted_total", "Requests that were let in.", []string{"gate", "class"}, nil)
	descGateShed     = prometheus.NewDesc("headgate_gate_shed_total", "Requests that were refused.", []string{"gate", "class", "reason"}, nil)
	descGateDone     = prometheus.NewDesc("headgate_gate_done_total", "Permits that were given back, by how the work has ended.", []string{"gate", "outcome"}, nil)
)

// Describe implements [prometheus.Collector].
func (g *Gates) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descGateLimit, descGateBusy, descGateWaiting, descGateBase, descGatePressure, descGateAdmitted, descGateShed, descGateDone,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (g *Gates) Collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	all := maps.Clone(g.all)
	g.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		all[name].collect(to, name)
	}
}

func (w *Gate) collect(to chan<- prometheus.Metric, name string) {
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
	}
	stats, limited := part[interface{ Stats() flow.Stats }](w.parts)
	if limited {
		s := stats.Stats()
		gauge(descGateBusy, float64(s.InUse))
		gauge(descGateWaiting, float64(s.Waiting))
		if s.Limit > 0 {
			gauge(descGateLimit, float64(s.Limit))
			limited = false
		}
	}
	if p, ok := part[interface{ Limit() int64 }](w.parts); ok && limited {
		gauge(descGateLimit, float64(p.Limit()))
	}
	if p, ok := part[interface{ Base() time.Duration }](w.parts); ok {
		gauge(descGateBase, p.Base().Seconds())
	}
	if p, ok := part[interface{ Pressure() float64 }](w.parts); ok {
		gauge(descGatePressure, p.Pressure())
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{name}, labels...)...)
	}
	for rank := range flow.Classes {
		class := flow.ClassOfRank(rank).String()
		counter(descGateAdmitted, w.counts.admitted[rank].Load(), class)
		for reason := range flow.Reasons {
			// Most of the many that there could be never are.
			if n := w.counts.shed[rank][reason].Load(); n > 0 {
				counter(descGateShed, n, class, flow.Reason(reason).String())
			}
		}
	}
	for outcome := range flow.Outcomes {
		counter(descGateDone, w.counts.done[outcome].Load(), flow.Outcome(outcome).String())
	}
}

// part is the first of the parts that can do what T wants.
func part[T any](parts []any) (t T, ok bool) {
	for _, p := range parts {
		if t, ok = p.(T); ok {
			return t, true
		}
	}
	return t, false
}

// InProgress returns a collector of what a keeper lets be in progress, for a registry:
//
//	headgate_in_progress_permits{rule}                  permits that requests of this process hold
//	headgate_in_progress_limit{rule}                    how many there are for each key, at most
//	headgate_in_progress_keys{rule}                     keys in use
//	headgate_in_progress_waiting{rule}                  requests that wait
//	headgate_in_progress_refused_total{rule, reason, shadow}
//	headgate_in_progress_wait_seconds{rule}             how long requests waited, where they may
//	headgate_in_progress_lost_total{rule}               shared permits that were lost while held
//
// The reason is that of a flow.Rejection, such as "busy", "queue_full" or "waited". With
// shadow="true" the request was let in all the same. A rule that is no longer in the
// policy has its series until nothing is in progress under it.
func InProgress(keeper *inprogress.Keeper) prometheus.Collector { return inProgress{keeper} }

type inProgress struct{ keeper *inprogress.Keeper }

var (
	descPermits = prometheus.NewDesc("headgate_in_progress_permits", "Permits that requests of this process hold.", []string{"rule"}, nil)
	descLimit   = prometheus.NewDesc("headgate_in_progress_limit", "How many permits there are for each key, at most.", []string{"rule"}, nil)
	descInUse   = prometheus.NewDesc("headgate_in_progress_keys", "Keys in use.", []string{"rule"}, nil)
	descWaiting = prometheus.NewDesc("headgate_in_progress_waiting", "Requests that wait for permits.", []string{"rule"}, nil)
	descRefused = prometheus.NewDesc("headgate_in_progress_refused_total", "Requests that got no permit, and with shadow those that would not have got one.", []string{"rule", "reason", "shadow"}, nil)
	descWait    = prometheus.NewDesc("headgate_in_progress_wait_seconds", "How long requests waited for their permits, where they may wait.", []string{"rule"}, nil)
	descLost    = prometheus.NewDesc("headgate_in_progress_lost_total", "Shared permits that were lost while they were held.", []string{"rule"}, nil)
)

// Describe implements [prometheus.Collector].
func (c inProgress) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descPermits, descLimit, descInUse, descWaiting, descRefused, descWait, descLost} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c inProgress) Collect(to chan<- prometheus.Metric) {
	bounds := inprogress.WaitBounds()
	for _, s := range c.keeper.Stats() {
		gauge := func(d *prometheus.Desc, v int64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), s.Rule)
		}
		gauge(descPermits, s.InUse)
		gauge(descLimit, s.Limit)
		gauge(descInUse, s.Keys)
		gauge(descWaiting, s.Waiting)
		if s.Shared {
			to <- prometheus.MustNewConstMetric(descLost, prometheus.CounterValue, float64(s.Lost), s.Rule)
		}
		for reason := range flow.Reasons {
			name := flow.Reason(reason).String()
			if n := s.Refused[reason]; n > 0 {
				to <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), s.Rule, name, "false")
			}
			if n := s.ShadowRefused[reason]; n > 0 {
				to <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), s.Rule, name, "true")
			}
		}
		var count uint64
		buckets := make(map[float64]uint64, len(bounds))
		for i, n := range s.Waits {
			if count += n; i < len(bounds) {
				buckets[bounds[i].Seconds()] = count
			}
		}
		if count > 0 {
			to <- prometheus.MustNewConstHistogram(descWait, count, s.WaitSum.Seconds(), buckets, s.Rule)
		}
	}
}
