package load

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Measurement is the result of sending requests in one [Shape]. Latencies and other times are in
// milliseconds.
type Measurement struct {
	// Scheduled is how many requests were due, and Sent how many of them were sent. The
	// others had waited for a free connection until the timeout.
	Scheduled int64 `json:"scheduled"`
	Sent      int64 `json:"sent"`
	// Status counts answers by their status: of HTTP, such as "200", or of gRPC, such as
	// "OK".
	Status map[string]int64 `json:"status"`
	// Latency is that of served requests, which have a status below 400. A request without an
	// answer in time counts with the timeout.
	Latency Percentiles `json:"latency_ms"`
	// Valid means that the sender was in time, so that the latencies are those of the service.
	// Otherwise, Invalid says why not.
	Valid   bool     `json:"valid"`
	Invalid []string `json:"invalid_because,omitempty"`

	// Errors counts requests without an answer, by the reason: timeout, refused, closed,
	// malformed, other or, if the measurement was ended early, interrupted.
	Errors map[string]int64 `json:"errors"`
	// ErrorShare is the part, 0 to 1, of the requests that were not served.
	ErrorShare float64 `json:"error_share"`
	// Rate and To are requests per second at the beginning and at the end. They are zero for
	// arrivals from a log. Held is how many were sent per second.
	Rate       float64 `json:"rate_per_second"`
	To         float64 `json:"to_per_second"`
	Held       float64 `json:"sent_per_second"`
	DurationMS float64 `json:"duration_ms"`
	// ByClass are the latencies of each class of answers: 2xx, 3xx, 4xx, 429, 5xx, or of
	// gRPC ok, limited and failed, or a reason of Errors.
	ByClass map[string]Percentiles `json:"latency_by_class_ms"`
	// Lag is how late the sender was.
	Lag Percentiles `json:"lag_ms"`
	// Waited is how many requests waited for a free connection, and WaitedMax for how long
	// at most.
	Waited    int64   `json:"waited"`
	WaitedMax float64 `json:"waited_max_ms"`
	// Rise is how much the median latency rises per minute; zero if that is not clear.
	Rise float64 `json:"rise_ms_per_minute"`
	// Sender is how many cores the sender kept busy, and Service how many the process of
	// [Options.PID] did. They are zero where the system does not say.
	Sender  float64 `json:"sender_cores"`
	Service float64 `json:"service_cores"`
	// Interrupted means that the measurement was ended early. Stopped means that it was ended
	// because an expectation could no longer hold.
	Interrupted bool `json:"interrupted,omitempty"`
	Stopped     bool `json:"stopped,omitempty"`
	// Targets are the requests that were sent most often, if there were several.
	Targets []TargetMeasurement `json:"targets,omitempty"`
	// Limiter is what the answers said about limits.
	Limiter *Limiter `json:"limiter,omitempty"`
	// Over is the course of the measurement over time.
	Over Series `json:"over_time"`

	latency *hdrhistogram.Histogram
}

// Percentiles are of lengths of time in milliseconds. All are zero if there are none.
type Percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// TargetMeasurement is one of several targets.
type TargetMeasurement struct {
	Target  string      `json:"target"`
	Sent    int64       `json:"sent"`
	Served  int64       `json:"served"`
	Latency Percentiles `json:"latency_ms"`
}

// Series is a course over time, in intervals of equal length.
type Series struct {
	StretchMS float64 `json:"stretch_ms"`
	Points    []Point `json:"points"`
}

// Point is one interval: the requests that were due in it. Limited are refusals by a limiter, and
// Failed all others that were not served.
type Point struct {
	Scheduled int64   `json:"scheduled"`
	Served    int64   `json:"served"`
	Limited   int64   `json:"limited"`
	Failed    int64   `json:"failed"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	Max       float64 `json:"max_ms"`
}

// Limiter is what answers said about limits.
type Limiter struct {
	// Denied is how many refusals there were. RetryAfter is how many of them said when to try
	// again, which was after ShortestMS to LongestMS.
	Denied     int64   `json:"denied"`
	RetryAfter int64   `json:"with_retry_after"`
	ShortestMS float64 `json:"shortest_retry_after_ms"`
	LongestMS  float64 `json:"longest_retry_after_ms"`
	// Limits are the limits that answers named, by any dialect of headers.
	Limits []AdvertisedLimit `json:"limits,omitempty"`
}

// AdvertisedLimit is a limit that answers named. Limit is -1 and PeriodMS is 0 if they did not say.
// Lowest is the lowest remaining number of units.
type AdvertisedLimit struct {
	Limit    int64   `json:"limit"`
	PeriodMS float64 `json:"period_ms"`
	Lowest   int64   `json:"lowest_remaining"`
}

// Served is how many requests were served.
func (m *Measurement) Served() (n int64) {
	for i := range m.Over.Points {
		n += m.Over.Points[i].Served
	}
	return n
}

// quantile returns the latency, in milliseconds, that the given percentage of the requests did not
// exceed.
func (m *Measurement) quantile(percent float64) float64 { return quantile(m.latency, percent) }

func quantile(h *hdrhistogram.Histogram, percent float64) float64 {
	if h == nil || h.TotalCount() == 0 {
		return 0
	}
	return ms(time.Duration(h.ValueAtPercentile(percent)) * time.Microsecond)
}

func percentiles(h *hdrhistogram.Histogram) Percentiles {
	return Percentiles{
		P50: quantile(h, 50), P90: quantile(h, 90), P95: quantile(h, 95), P99: quantile(h, 99), P999: quantile(h, 99.9), Max: quantile(h, 100),
	}
}

// ms is a length of time in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }

// Merge adds up successive measurements of one client. It leaves out the rates.
func Merge(all []*Measurement) *Measurement {
	sum := &Measurement{Status: make(map[string]int64), Errors: make(map[string]int64), Valid: true, latency: histogram()}
	ended, missed := 0.0, 0.0
	for _, m := range all {
		sum.Scheduled += m.Scheduled
		sum.Sent += m.Sent
		sum.DurationMS += m.DurationMS
		for code, n := range m.Status {
			sum.Status[code] += n
		}
		for code, n := range m.Errors {
			sum.Errors[code] += n
		}
		sum.latency.Merge(m.latency)
		sum.Valid = sum.Valid && m.Valid
		sum.Invalid = append(sum.Invalid, m.Invalid...)
		sum.Interrupted = sum.Interrupted || m.Interrupted
		sum.Waited += m.Waited
		sum.WaitedMax = max(sum.WaitedMax, m.WaitedMax)
		sum.Lag.P99, sum.Lag.Max = max(sum.Lag.P99, m.Lag.P99), max(sum.Lag.Max, m.Lag.Max)
		sum.Sender += m.Sender * m.DurationMS
		sum.Service += m.Service * m.DurationMS
		n := float64(m.Scheduled)
		ended, missed = ended+n, missed+n*m.ErrorShare
	}
	if ended > 0 {
		sum.ErrorShare = missed / ended
	}
	if sum.DurationMS > 0 {
		sum.Held = float64(sum.Sent) / sum.DurationMS * 1000
		sum.Sender, sum.Service = sum.Sender/sum.DurationMS, sum.Service/sum.DurationMS
	}
	sum.Latency = percentiles(sum.latency)
	return sum
}

// Report is what a command has measured, as it is written as JSON.
type Report struct {
	// Measurement is that at the sustainable rate after a search, and the sum of all after several
	// steps.
	*Measurement
	// Target is what was asked for.
	Target string `json:"target"`
	// NotMet are the expectations that do not hold.
	NotMet []string `json:"not_met,omitempty"`
	// Found is what a search has found.
	*Found
	// Each is the measurement of each step, if there were several without a search.
	Each []*Measurement `json:"measurements,omitempty"`
	// Audit is what an audit of the limiter has found.
	Audit *Audit `json:"audit,omitempty"`
}

const (
	// longest is the longest time that histograms distinguish. They begin at a microsecond.
	longest = time.Hour
	// points is how many intervals a measurement is divided into.
	points = 60
	// maxTargets is how many targets are measured separately.
	maxTargets = 20
	// maxLimits is how many limits that answers tell of are kept.
	maxLimits = 16
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
	if o.header == nil && o.inMessage == nil {
		return
	}
	if o.kind == served {
		if t.looked++; t.looked%hintEvery != 1 {
			return
		}
	}
	hint := o.hint()
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
		} else if len(t.limits) < maxLimits {
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
	m.Status, m.Errors = maps.Clone(t.m.Status), maps.Clone(t.m.Errors)
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
			l.Limits = append(l.Limits, AdvertisedLimit{Limit: key.limit, PeriodMS: ms(key.period), Lowest: lowest})
		}
		slices.SortFunc(l.Limits, func(a, b AdvertisedLimit) int {
			return slices.Compare([]float64{a.PeriodMS, float64(a.Limit)}, []float64{b.PeriodMS, float64(b.Limit)})
		})
		m.Limiter = &l
	}
	return &m
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
