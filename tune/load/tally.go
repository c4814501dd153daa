package load

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/httplimit/outbound"
)

const (
	// longest is the longest time that histograms distinguish. They begin at a microsecond.
	longest = time.Hour
	// points is how many intervals a measurement is divided into.
	points = 60
	// maxTargets is how many targets are measured separately.
	maxTargets = 20
	// maxTold is how many limits that answers tell of are kept.
	maxTold = 16
	// Of the answers that are no refusals, one in hintEvery is searched for limits.
	hintEvery = 64
)

// histogram has an error of at most 0.1 %, and a coarse one of at most 1 %.
func histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), 3)
}
func coarse() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest.Microseconds(), 2) }

// record adds a time to a histogram. Its error is that of a time that is too long.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), longest.Microseconds()))
}

// tally counts what comes of requests. It is safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	m       Measurement // its counts
	lag     *hdrhistogram.Histogram
	latency *hdrhistogram.Histogram
	classes map[string]*hdrhistogram.Histogram
	stretch time.Duration
	windows []window
	targets []targetTally
	group   []int32 // which of these a target belongs to, or -1
	served  int64
	others  int64 // ended, but not served
	looked  int64
	limits  map[toldKey]int64
	limiter Limiter

	// For each expectation, over is how many requests have missed its bound, out of all scheduled
	// ones. When an expectation can no longer hold, failed is set.
	expect []Expectation
	over   []int64
	all    int64
	failed bool
}

type window struct {
	Point
	latency *hdrhistogram.Histogram
}

type targetTally struct {
	name         string
	sent, served int64
	latency      *hdrhistogram.Histogram
}

type toldKey struct {
	limit  int64
	period time.Duration
}

func newTally(shape *Shape, g groups, expect []Expectation) *tally {
	t := &tally{
		lag: histogram(), latency: histogram(), classes: make(map[string]*hdrhistogram.Histogram),
		stretch: max(shape.length()/points, time.Millisecond), limits: make(map[toldKey]int64),
		expect: expect, over: make([]int64, len(expect)), all: shape.count(), group: g.of,
	}
	t.m.Status, t.m.Errors = make(map[string]int64), make(map[string]int64)
	if len(g.of) > 1 {
		for _, name := range g.names {
			t.targets = append(t.targets, targetTally{name: name, latency: coarse()})
		}
	}
	return t
}

// one is a request that has ended.
type one struct {
	due     time.Duration
	target  int32
	unsent  bool
	lag     time.Duration
	waited  time.Duration
	latency time.Duration
	answer
}

func (t *tally) add(o *one) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &t.m
	if o.waited > 0 {
		m.Waited++
		m.WaitedMax = max(m.WaitedMax, ms(o.waited))
	}
	if !o.unsent {
		m.Sent++
		record(t.lag, o.lag)
	}
	if o.kind >= timedOut {
		m.Errors[o.code]++
	} else {
		m.Status[o.code]++
	}
	if o.kind == abandoned {
		return
	}
	class := t.classes[o.class]
	if class == nil {
		class = histogram()
		t.classes[o.class] = class
	}
	record(class, o.latency)
	w := t.window(o.due)
	w.Scheduled++
	switch o.kind {
	case served:
		t.served++
		w.Served++
	case limited:
		w.Limited++
	default:
		w.Failed++
	}
	if o.kind != served {
		t.others++
	}
	counts := o.kind == served || o.kind == timedOut
	if counts {
		record(t.latency, o.latency)
		record(w.latency, o.latency)
	}
	t.one(o, counts)
	t.hopeless(o, counts)
	t.hints(o)
}

// window returns the interval that contains an instant.
func (t *tally) window(due time.Duration) *window {
	i := min(int(due/t.stretch), 2*points)
	for len(t.windows) <= i {
		t.windows = append(t.windows, window{latency: coarse()})
	}
	return &t.windows[i]
}

// one counts a request for its target.
func (t *tally) one(o *one, counts bool) {
	n := int(t.group[o.target])
	if n < 0 || n >= len(t.targets) {
		return
	}
	target := &t.targets[n]
	if !o.unsent {
		target.sent++
	}
	if o.kind == served {
		target.served++
	}
	if counts {
		record(target.latency, o.latency)
	}
}

// hopeless records whether so many requests have missed a bound that the expectation fails even if
// all remaining requests keep it.
func (t *tally) hopeless(o *one, counts bool) {
	for i := range t.expect {
		e := &t.expect[i]
		switch {
		case e.percent > 0 && counts && ms(o.latency) > e.bound:
			t.over[i]++
			t.failed = t.failed || float64(t.over[i]) > (1-e.percent/100)*float64(t.all)+1
		case e.what == errorShare && o.kind != served:
			t.over[i]++
			t.failed = t.failed || float64(t.over[i]) > e.bound*float64(t.all)+1
		}
	}
}

// lost reports whether an expectation can no longer hold.
func (t *tally) lost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// hints reads what an answer says of limits.
func (t *tally) hints(o *one) {
	if o.header == nil {
		return
	}
	if o.kind == served {
		if t.looked++; t.looked%hintEvery != 1 {
			return
		}
	}
	hint := outbound.ReadHint(o.status, o.header, time.Now())
	if o.kind == limited {
		l := &t.limiter
		l.Denied++
		if wait := ms(hint.Wait); wait > 0 {
			if l.RetryAfter++; l.RetryAfter == 1 {
				l.ShortestMS = wait
			}
			l.ShortestMS, l.LongestMS = min(l.ShortestMS, wait), max(l.LongestMS, wait)
		}
	}
	for _, w := range hint.Windows {
		key := toldKey{w.Limit, w.Period}
		if lowest, ok := t.limits[key]; ok {
			t.limits[key] = min(lowest, w.Remaining)
		} else if len(t.limits) < maxTold {
			t.limits[key] = w.Remaining
		}
	}
}

// measured is what was counted so far, of requests that were due in a time.
func (t *tally) measured(scheduled int64, passed time.Duration) *Measurement {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.m
	m.Scheduled, m.DurationMS = scheduled, ms(passed)
	m.Status, m.Errors = clone(t.m.Status), clone(t.m.Errors)
	if passed > 0 {
		m.Held = float64(m.Sent) / passed.Seconds()
	}
	if ended := t.served + t.others; ended > 0 {
		m.ErrorShare = float64(t.others) / float64(ended)
	}
	m.Latency, m.Lag = percentiles(t.latency), percentiles(t.lag)
	m.latency = hdrhistogram.Import(t.latency.Export())
	m.ByClass = make(map[string]Percentiles)
	for class, h := range t.classes {
		m.ByClass[class] = percentiles(h)
	}
	m.Over.StretchMS = ms(t.stretch)
	for i := range t.windows {
		w := &t.windows[i]
		p := w.Point
		p.P50, p.P95, p.Max = quantile(w.latency, 50), quantile(w.latency, 95), quantile(w.latency, 100)
		m.Over.Points = append(m.Over.Points, p)
	}
	m.Rise = rise(m.Over)
	for i := range t.targets {
		target := &t.targets[i]
		m.Targets = append(m.Targets, TargetMeasurement{Target: target.name, Sent: target.sent, Served: target.served, Latency: percentiles(target.latency)})
	}
	if t.limiter.Denied > 0 || len(t.limits) > 0 {
		l := t.limiter
		for key, lowest := range t.limits {
			l.Limits = append(l.Limits, ToldLimit{Limit: key.limit, PeriodMS: ms(key.period), Lowest: lowest})
		}
		slices.SortFunc(l.Limits, func(a, b ToldLimit) int {
			return slices.Compare([]float64{a.PeriodMS, float64(a.Limit)}, []float64{b.PeriodMS, float64(b.Limit)})
		})
		m.Limiter = &l
	}
	return &m
}

func clone(m map[string]int64) map[string]int64 {
	out := make(map[string]int64, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// rise returns how much the median latency rises per minute. It is the median of the slopes between
// all pairs of intervals, so that a few disturbed intervals do not matter.
func rise(over Series) float64 {
	var slopes []float64
	for i := range over.Points {
		for j := range i {
			a, b := &over.Points[j], &over.Points[i]
			if a.Served > 0 && b.Served > 0 {
				slopes = append(slopes, (b.P50-a.P50)/(float64(i-j)*over.StretchMS))
			}
		}
	}
	const enough = 28 // pairs of eight stretches
	if len(slopes) < enough {
		return 0
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2] * ms(time.Minute)
}

// judge says whether the sender was in time.
func (m *Measurement) judge(maxLag time.Duration) {
	if m.Lag.P99 > ms(maxLag) {
		m.Invalid = append(m.Invalid, fmt.Sprintf("the sender was late by %.1f ms or more for one request in a hundred, and may be late by %v", m.Lag.P99, maxLag))
	}
	m.Valid = len(m.Invalid) == 0
}
