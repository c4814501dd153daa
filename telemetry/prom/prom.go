// Package prom shows what a [headgate.Store] decides to Prometheus.
//
// # Basics
//
// Make a [Recorder] on a registry and put its hooks around the store:
//
//	recorder, err := prom.New(prometheus.DefaultRegisterer)
//	if err != nil {
//		return err
//	}
//	store := headgate.Observe(memory.New(), recorder.Hooks())
//
// These metrics come of it:
//
//	headgate_decisions_total{rule, limit, outcome}    one for each limit of each request taken
//	headgate_decisions_by_source_total{source}        the same, by who decided: store, async, local and so on
//	headgate_store_duration_seconds{op}               how long the store took, errors included
//	headgate_store_errors_total{op, reason}           calls that ended without a decision
//
// The outcome is "allowed" where the units were charged, "denied" where this
// limit did not admit them, and "uncharged" where it would have but another
// limit of the same request denied. A limit of a rule in shadow denies nobody:
// what it would have denied is "shadow_denied". So the allowed decisions of a
// limit are the requests that it let pass, the denied ones those that it held
// back, and the shadow_denied ones those that it would hold back if the rule were
// enforced.
// Only takes are counted as decisions: a peek decides nothing, and a refund or
// a reset is no request.
//
// A decision by a node's share of a limit counts as one by the limit.
//
// The reason is "unavailable" (the store did not answer, or not in time),
// "invalid" (the checks were at fault), "canceled" (the caller went away) or
// "other".
//
// # Caveats
//
// No label ever holds a key. Labels hold names of rules, texts of limits and
// nothing else, so that there are as many series as the policy has limits, times
// four. A program that makes up rule names from what its users send has no such
// bound.
//
// A rule that is no longer in the policy keeps its series until the process ends, or
// until [Recorder.Keep] is told that it has gone.
package prom

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/tally"
)

// Recorder turns what a store's hooks report into metrics. It is safe for
// concurrent use.
type Recorder struct {
	decisions *prometheus.CounterVec
	errors    *prometheus.CounterVec
	durations durations // by the operation's number
	sources   [len(sources)]prometheus.Counter

	// known spares Decided the work of finding a counter by its labels. The map
	// is never changed once it stands here: a limit that is new gets a copy.
	known atomic.Pointer[map[*headgate.Limit]*counters]

	mu     sync.Mutex // guards series
	series map[series]*counters
}

// series names the counters of one limit by their labels.
type series struct{ rule, limit string }

// maxKnown bounds the known limits. Policies that are reloaded leave limits
// behind that nobody asks about any more; beyond the bound all are forgotten and
// those in use are found again.
const maxKnown = 4096

// counters are those of one limit, in the order of outcomes.
type counters [4]prometheus.Counter

const (
	allowed = iota
	denied
	uncharged
	shadowDenied
)

var outcomes = [len(counters{})]string{"allowed", "denied", "uncharged", "shadow_denied"}

// sources are those that may decide, in their own order.
var sources = [...]headgate.Source{headgate.SourceStore, headgate.SourceCache, headgate.SourceLease, headgate.SourceLocal, headgate.SourceOpen, headgate.SourceAsync}

// ops are the operations that a store knows.
var ops = [...]headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund, headgate.OpReset, headgate.OpCharge}

// durations are the calls to a store, by operation.
type durations struct{ *tally.Tally }

var durationDesc = prometheus.NewDesc("headgate_store_duration_seconds",
	"How long calls to the store took, those that failed included.", []string{"op"}, nil)

// Describe implements [prometheus.Collector].
func (d durations) Describe(to chan<- *prometheus.Desc) { to <- durationDesc }

// Collect implements [prometheus.Collector].
func (d durations) Collect(to chan<- prometheus.Metric) {
	calls, _ := d.Read()
	for i, op := range ops {
		c := &calls[i]
		to <- prometheus.MustNewConstHistogram(durationDesc, c.Calls, c.Took.Seconds(), c.Within, op.String())
	}
}

// New returns a recorder whose metrics are registered with reg. It fails if reg
// has metrics of these names already; a second store in the same process needs
// a registerer that adds a label, see [prometheus.WrapRegistererWith].
func New(reg prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{
		series:    make(map[series]*counters),
		durations: durations{tally.New(len(ops))},
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_decisions_total",
			Help: "Decisions on requests, one for each limit that bound them. " +
				"Outcome: allowed (charged), denied (by this limit), uncharged (another limit denied), " +
				"shadow_denied (this limit is on trial and would have denied).",
		}, []string{"rule", "limit", "outcome"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_store_errors_total",
			Help: "Calls to the store that ended without a decision. Reason: unavailable, invalid, canceled, other.",
		}, []string{"op", "reason"}),
	}
	bySource := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_decisions_by_source_total",
		Help: "Decisions on requests, one for each limit that bound them, by who decided. " +
			"Source: store, deny_cache (a denial that was remembered), lease (units taken in advance), async (this process, which tells the store afterwards), " +
			"local (the store did not answer: this process's share), open (the store did not answer: nobody, the request was let in).",
	}, []string{"source"})
	for i, source := range sources {
		r.sources[i] = bySource.WithLabelValues(source.String())
	}
	for _, op := range ops {
		// A counter that is there from the start, at zero, is one that an alert
		// on its increase can see.
		r.errors.WithLabelValues(op.String(), "unavailable")
	}
	r.known.Store(&map[*headgate.Limit]*counters{})

	collectors := []prometheus.Collector{r.decisions, r.errors, bySource, r.durations}
	for i, c := range collectors {
		if err := reg.Register(c); err != nil {
			for _, done := range collectors[:i] {
				reg.Unregister(done)
			}
			return nil, err
		}
	}
	return r, nil
}

// Hooks are what [headgate.Observe] needs.
func (r *Recorder) Hooks() headgate.Hooks {
	return headgate.Hooks{Decided: r.decided, Failed: r.failed}
}

func (r *Recorder) decided(_ context.Context, op headgate.Op, _ []headgate.Check, decisions []headgate.Decision, took time.Duration) {
	r.took(op, took)
	if op != headgate.OpTake {
		return
	}
	charged := true
	for i := range decisions {
		if !decisions[i].Allowed && !decisions[i].Shadow {
			charged = false
			break
		}
	}
	first := 0 // of the decisions of the same check
	for i := range decisions {
		d := &decisions[i]
		if int(d.Source) < len(r.sources) {
			r.sources[d.Source].Inc()
		}
		if d.Check != decisions[first].Check {
			first = i
		}
		outcome := allowed
		switch {
		case !d.Allowed && d.Shadow:
			outcome = shadowDenied
		case !d.Allowed:
			outcome = denied
		case !charged:
			outcome = uncharged
		}
		r.counters(d, i-first)[outcome].Inc()
	}
}

func (r *Recorder) failed(_ context.Context, op headgate.Op, _ []headgate.Check, err error, took time.Duration) {
	r.took(op, took)
	r.errors.WithLabelValues(op.String(), reason(err)).Inc()
}

func (r *Recorder) took(op headgate.Op, took time.Duration) {
	if int(op) < len(ops) {
		r.durations.Add(int(op), took)
	}
}

// reason sorts errors. A caller who went away is named first: what the store
// says then, it says for that reason.
func reason(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, headgate.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "unavailable"
	case errors.Is(err, headgate.ErrInvalid):
		return "invalid"
	}
	return "other"
}

// counters returns those of the decision's limit, which has this place in its rule.
// A share of a limit, which is another for each number of nodes, is counted as the
// limit.
func (r *Recorder) counters(d *headgate.Decision, place int) *counters {
	known := r.known.Load()
	limit := d.Limit
	if d.Source == headgate.SourceLocal && d.Rule != nil && place < len(d.Rule.Limits()) {
		limit = &d.Rule.Limits()[place]
	}
	if c, ok := (*known)[limit]; ok {
		return c
	}
	labels := series{limit: limit.String()}
	if d.Rule != nil {
		labels.rule = d.Rule.Name()
	}
	c := r.labelled(labels)
	grown := make(map[*headgate.Limit]*counters, len(*known)+1)
	if len(*known) < maxKnown {
		for limit, c := range *known {
			grown[limit] = c
		}
	}
	grown[limit] = c
	// Whoever loses the race is found again at the next decision.
	r.known.CompareAndSwap(known, &grown)
	return c
}

// labelled returns the counters with these labels.
func (r *Recorder) labelled(labels series) *counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.series[labels]
	if c == nil {
		c = new(counters)
		for i, outcome := range outcomes {
			c[i] = r.decisions.WithLabelValues(labels.rule, labels.limit, outcome)
		}
		r.series[labels] = c
	}
	return c
}

// Keep ends the series of all limits for which in reports false: those of rules that a
// new policy no longer has. A request that is being decided meanwhile may begin the series
// of a limit anew, or be lost to it. So call Keep before each scrape, and not only once.
func (r *Recorder) Keep(in func(rule, limit string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.series)
	for labels := range r.series {
		if in(labels.rule, labels.limit) {
			continue
		}
		for _, outcome := range outcomes {
			r.decisions.DeleteLabelValues(labels.rule, labels.limit, outcome)
		}
		delete(r.series, labels)
	}
	if len(r.series) < before {
		// Some of the known counters are no longer shown. Those that are in use are found
		// again.
		r.known.Store(&map[*headgate.Limit]*counters{})
	}
}

// maxSeries bounds the nodes and operations that [Nodes] tells apart.
const maxSeries = 1024

// Nodes turns the calls of a store that runs on several servers into a histogram for
// each of them:
//
//	headgate_store_node_duration_seconds{node, op}    how long calls took, errors included
//	headgate_store_node_errors_total{node, op}        calls that failed
//
// Its Observe is what the stores' option Observe needs. It is a
// [prometheus.Collector], to be registered, and safe for concurrent use.
type Nodes struct {
	durations *prometheus.HistogramVec
	errors    *prometheus.CounterVec

	// known spares Observe the work of finding a series by its labels. The map is never
	// changed once it stands here.
	known atomic.Pointer[map[nodeOp]*nodeSeries]
	mu    sync.Mutex // guards the making of another one
}

type nodeOp struct{ node, op string }

type nodeSeries struct {
	durations prometheus.Observer
	errors    prometheus.Counter
}

// NewNodes returns a collector without any nodes. A server that scrapes native histograms
// gets one that is finer still.
func NewNodes() *Nodes {
	n := &Nodes{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_store_node_duration_seconds",
			Help: "How long calls to each server of the store took, with redirections; those that failed included. A call may carry several decisions.",
			// 50 µs to 1.2 s, each a quarter more than the one before, so that any quantile,
			// p99.9 too, is known to within that.
			Buckets:                     prometheus.ExponentialBuckets(50e-6, 1.25, 46),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"node", "op"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_store_node_errors_total",
			Help: "Calls to each server of the store that failed.",
		}, []string{"node", "op"}),
	}
	n.known.Store(&map[nodeOp]*nodeSeries{})
	return n
}

// Observe counts a call. An empty node is one that is not known, and beyond some
// hundreds of nodes so are those that are new.
func (n *Nodes) Observe(node, op string, took time.Duration, err error) {
	s := (*n.known.Load())[nodeOp{node, op}]
	if s == nil {
		s = n.add(node, op)
	}
	s.durations.Observe(took.Seconds())
	if err != nil {
		s.errors.Inc()
	}
}

func (n *Nodes) add(node, op string) *nodeSeries {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := *n.known.Load()
	if s := known[nodeOp{node, op}]; s != nil {
		return s
	}
	label := node
	if node == "" || len(known) >= maxSeries {
		label = "unknown"
	}
	s := &nodeSeries{n.durations.WithLabelValues(label, op), n.errors.WithLabelValues(label, op)}
	if len(known) >= maxSeries {
		return s
	}
	next := make(map[nodeOp]*nodeSeries, len(known)+1)
	for k, v := range known {
		next[k] = v
	}
	next[nodeOp{node, op}] = s
	n.known.Store(&next)
	return s
}

// Describe implements [prometheus.Collector].
func (n *Nodes) Describe(ch chan<- *prometheus.Desc) {
	n.durations.Describe(ch)
	n.errors.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (n *Nodes) Collect(ch chan<- prometheus.Metric) {
	n.durations.Collect(ch)
	n.errors.Collect(ch)
}
