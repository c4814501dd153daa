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
