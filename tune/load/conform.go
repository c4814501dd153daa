package load

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Promise is a limit that a limiter is held to.
type Promise struct {
	// Count is how many requests are admitted per Period.
	Count  int64         `json:"count"`
	Period time.Duration `json:"period_ns"`
	// Burst is how many are admitted at once. Zero means Count.
	Burst int64 `json:"burst"`

	cost int64 // what a request takes; zero means 1
}

func (p Promise) String() string {
	text := fmt.Sprintf("%d per %v", p.Count, p.Period)
	if p.Burst > 0 && p.Burst != p.Count {
		text += fmt.Sprintf(" with a burst of %d", p.Burst)
	}
	return text
}

// ParsePromise parses COUNT/PERIOD or COUNT/PERIOD/BURST, such as 10/1s. The empty text is the zero
// value.
func ParsePromise(text string) (p Promise, err error) {
	if text == "" {
		return p, nil
	}
	parts := strings.Split(text, "/")
	wrong := fmt.Errorf("headgate: the limit is %q, must be such as 10/1s, or 10/1s/20 for a burst of 20", text)
	if len(parts) < 2 || len(parts) > 3 {
		return p, wrong
	}
	if p.Count, err = strconv.ParseInt(parts[0], 10, 64); err != nil || p.Count < 1 {
		return p, wrong
	}
	if p.Period, err = time.ParseDuration(parts[1]); err != nil || p.Period < time.Millisecond {
		return p, wrong
	}
	if len(parts) == 3 {
		if p.Burst, err = strconv.ParseInt(parts[2], 10, 64); err != nil || p.Burst < 1 {
			return p, wrong
		}
	}
	return p, nil
}

// each is how long one request's units take to become free, at a length of the period.
func (p Promise) each(period float64) float64 {
	return period * float64(max(p.cost, 1)) / float64(p.Count)
}

// most is how many requests a window admits.
func (p Promise) most() int64 { return p.Count / max(p.cost, 1) }

// kept is how long a request counts: the window, or the time in which a whole burst becomes free.
func (p Promise) kept() time.Duration {
	if p.Burst <= p.Count {
		return p.Period
	}
	return time.Duration(float64(p.Period) * float64(p.Burst) / float64(p.Count))
}

// settled is how long it takes until windows and buckets cannot be mistaken for each other.
func (p Promise) settled() time.Duration { return p.Period * 5 / 2 }

// seen is the text of a limit that was found by its effects.
func (p Promise) seen() string {
	if p.Burst > 0 {
		return fmt.Sprintf("%.3g a second with a burst of %d", float64(p.Count)/p.Period.Seconds(), p.Burst)
	}
	return fmt.Sprintf("%d per %v", p.Count, p.Period.Round(10*time.Millisecond))
}

// decision is what a limiter decided about one request. It did so at some instant from sent to
// answered, which are counted from the beginning of the audit.
type decision struct {
	sent, answered time.Duration
	admitted       bool
	wait           time.Duration // what a denial says to wait; zero if it does not say
}

// grain is by how much the clock that a limiter reads may be behind: many servers read it once
// per turn of their loop, in whole milliseconds.
const grain = 3 * time.Millisecond

// conduct is how the decisions differ from those of one algorithm. Only what is certain counts,
// whenever between sent and answered the decisions were made.
type conduct struct {
	algorithm string
	promise   Promise
	over      []time.Duration // the admissions that the algorithm would have denied
	early     []time.Duration // the denials that it would have admitted
}

func (c *conduct) faults() int { return len(c.over) + len(c.early) }

// history is what was decided, in an order that the algorithms can be compared with.
type history struct {
	admitted []decision      // by the time of the answer
	denied   []decision      // by the time of sending
	soonest  []time.Duration // for each admission, when the first of it and those after it was sent
	epoch    time.Duration
}

// newHistory sorts decisions. epoch is the time of the clock at their beginning, since 1970.
func newHistory(all []decision, epoch time.Duration) *history {
	h := &history{epoch: epoch}
	for _, d := range all {
		if d.admitted {
			h.admitted = append(h.admitted, d)
		} else {
			h.denied = append(h.denied, d)
		}
	}
	slices.SortFunc(h.admitted, func(a, b decision) int { return cmp.Compare(a.answered, b.answered) })
	slices.SortFunc(h.denied, func(a, b decision) int { return cmp.Compare(a.sent, b.sent) })
	h.soonest = make([]time.Duration, len(h.admitted))
	for i := len(h.admitted) - 1; i >= 0; i-- {
		if h.soonest[i] = h.admitted[i].sent; i+1 < len(h.admitted) {
			h.soonest[i] = min(h.soonest[i], h.soonest[i+1])
		}
	}
	return h
}

// forgive leaves out the denials that requests may explain of which nothing was heard: they may have
// been charged, and count for so long.
func (h *history) forgive(lost []decision, kept time.Duration) {
	h.denied = slices.DeleteFunc(h.denied, func(d decision) bool {
		return slices.ContainsFunc(lost, func(l decision) bool { return l.sent <= d.answered && d.sent <= l.answered+kept })
	})
}

// after is the index of the first admission that was answered at an instant or later.
func (h *history) after(t time.Duration) int {
	i, _ := slices.BinarySearchFunc(h.admitted, t, func(a decision, t time.Duration) int { return cmp.Compare(a.answered, t) })
	return i
}

// sentBefore counts the admissions, from an index on, that were sent by an instant, and ends at most:
// a limiter that fails open admits thousands in a window of ten. Where a clock
// stands still, requests at the same instant may have come in any order.
func (h *history) sentBefore(from int, t time.Duration, most int64) (n int64) {
	for i := from; i < len(h.admitted) && h.soonest[i] <= t && n < most; i++ {
		if h.admitted[i].sent <= t {
			n++
		}
	}
	return n
}

// algorithms are what limiters can be compared with. The tolerance, 0 to 1, is by how much the
// period may be wrong.
var algorithms = []func(h *history, p Promise, tolerance float64) conduct{bucket, paced, fixedFromFirst, fixedByClock, sliding, slidingCounter}

// closest returns the conduct of the algorithm that explains most.
func (h *history) closest(p Promise) (best conduct) {
	some := algorithms
	if p.Burst > 0 {
		some = some[:2] // A window has no burst of its own.
	}
	for i, algorithm := range some {
		c := algorithm(h, p, 0)
		if i == 0 || c.faults() < best.faults() {
			best = c
		}
	}
	return best
}

// stretched returns a period that is shorter and one that is longer by the tolerance.
func stretched(period time.Duration, tolerance float64) (short, long float64) {
	return float64(period) * (1 - tolerance), float64(period) * (1 + tolerance)
}

// bucket compares with a token bucket, which is also what GCRA and nginx's nodelay are.
func bucket(h *history, p Promise, tolerance float64) conduct {
	c := conduct{algorithm: "token bucket", promise: p}
	short, long := stretched(p.Period, tolerance)
	burst := float64(cmp.Or(p.Burst, p.Count)) / float64(max(p.cost, 1))
	// No span of time may have more admissions than the burst and what became free in it. least
	// is the minimum, over all beginnings of a span, of the admissions before minus those freed.
	// After a denial there is less than one unit, so that no more than one comes before what is freed.
	each, count, least, empty, known := p.each(short), 0.0, math.Inf(1), math.Inf(1), 0
	for i, d := range h.admitted {
		for ; known < len(h.denied) && h.denied[known].answered < h.soonest[i]; known++ {
			empty = min(empty, count-float64(h.denied[known].sent-grain)/each)
		}
		least = min(least, count-float64(d.sent-grain)/each)
		if count+1-float64(d.answered+grain)/each > min(burst+least, 1+empty)+1e-9 {
			c.over = append(c.over, d.answered)
			continue
		}
		count++
	}
	// The level at a denial, if each admission before it was as late as it may have been. Others may
	// have used the limit before the audit.
	each = p.each(long)
	next, level, at := 0, 0.0, 0.0
	byAnswer := h.admitted
	for _, d := range h.denied {
		now := float64(d.sent - grain)
		// Admissions that were sent before this answer may have come first.
		for next < len(byAnswer) && byAnswer[next].answered < d.sent {
			t := float64(byAnswer[next].answered + grain)
			level, at = max(min(burst, level+max(t-at, 0)/each)-1, 0), max(t, at)
			next++
		}
		left := min(burst, level+max(now-at, 0)/each)
		if left -= float64(h.sentBefore(next, d.answered, int64(burst))); left >= 1+1e-9 {
			c.early = append(c.early, d.sent)
		}
	}
	return c
}

// paced compares with a limiter that delays requests so that they leave at a rate, and denies what
// finds the queue full, as nginx does without nodelay.
func paced(h *history, p Promise, tolerance float64) conduct {
	c := conduct{algorithm: "paced queue", promise: p}
	short, _ := stretched(p.Period, tolerance)
	each, depth := p.each(short), cmp.Or(p.Burst, p.Count)/max(p.cost, 1)
	count, least := 0.0, math.Inf(1)
	for _, d := range h.admitted {
		// Timers and the network shift a departure by some milliseconds.
		least = min(least, count-float64(d.answered)/each)
		if count-float64(d.answered+slackFor)/each > least+1e-9 {
			c.over = append(c.over, d.answered)
			continue
		}
		count++
	}
	for _, d := range h.denied {
		from := h.after(d.sent - grain)
		waiting := 1 + h.sentBefore(from, d.answered, depth) // one that has left may count until the next turn
		// One that has just left frees its place only when its interval is over.
		if from > 0 && float64(d.sent-h.admitted[from-1].answered) < each {
			waiting++
		}
		if waiting < depth {
			c.early = append(c.early, d.sent)
		}
	}
	return c
}

// sliding compares with an exact sliding window.
func sliding(h *history, p Promise, tolerance float64) conduct {
	c := conduct{algorithm: "sliding window", promise: p}
	short, long := stretched(p.Period, tolerance)
	var kept []decision
	for _, d := range h.admitted {
		kept = append(kept, d)
		n := len(kept) - 1 - int(p.most())
		if n >= 0 && float64(d.answered-kept[n].sent+2*grain) < short {
			c.over = append(c.over, d.answered)
			kept = kept[:len(kept)-1]
		}
	}
	for _, d := range h.denied {
		if float64(d.sent) < long {
			continue // What was admitted before the audit may count.
		}
		if h.sentBefore(h.after(d.sent-2*grain-time.Duration(long)), d.answered, p.most()) < p.most() {
			c.early = append(c.early, d.sent)
		}
	}
	return c
}

// within counts those that were sent by an instant, and ends at most.
func within(all []decision, by time.Duration, most int64) (n int64) {
	for i := 0; i < len(all) && n < most; i++ {
		if all[i].sent <= by {
			n++
		}
	}
	return n
}

// fixedFromFirst compares with windows that begin with the first request after the last window.
func fixedFromFirst(h *history, p Promise, tolerance float64) conduct {
	c := conduct{algorithm: "fixed window from the first request", promise: p}
	short, long := stretched(p.Period, tolerance)
	type window struct {
		from, to time.Duration // between which it begins
		all      []decision    // that may be in it
		sure     int64
	}
	var windows []window
	for _, d := range h.admitted {
		last := len(windows) - 1
		begins := last < 0 || float64(d.sent-grain-windows[last].to) >= long
		if !begins {
			w := &windows[last]
			certain := float64(d.answered+grain-w.from) < short
			switch {
			case certain && w.sure >= p.most():
				c.over = append(c.over, d.answered)
				continue
			case certain:
				w.sure++
				w.all = append(w.all, d)
				w.to = min(w.to, d.answered) // it has begun by then
				continue
			case int64(len(w.all)) < p.most():
				w.all = append(w.all, d)
				continue
			}
		}
		windows = append(windows, window{from: d.sent, to: d.answered, all: []decision{d}, sure: 1})
	}
	for _, d := range h.denied {
		if float64(d.sent) < long {
			continue // A window may have begun before the audit.
		}
		i, _ := slices.BinarySearchFunc(windows, d.answered, func(w window, t time.Duration) int { return cmp.Compare(w.from, t) })
		if i == 0 {
			c.early = append(c.early, d.sent)
			continue
		}
		w := &windows[i-1]
		inside := d.sent >= w.to
		// Windows that may have begun meanwhile count as well.
		if over := float64(d.sent-grain-w.to) >= long; inside && (over || within(w.all, d.answered, p.most()) < p.most()) {
			c.early = append(c.early, d.sent)
		}
	}
	return c
}

// clockWindows are the windows that begin at multiples of their length since 1970.
type clockWindows struct {
	sure, possible map[int64][]decision
	epoch          time.Duration
	period         time.Duration
}

func (h *history) byClock(p Promise) *clockWindows {
	w := &clockWindows{make(map[int64][]decision), make(map[int64][]decision), h.epoch, p.Period}
	for _, d := range h.admitted {
		first, last := w.of(d.sent-grain), w.of(d.answered+grain)
		for i := first; i <= last; i++ {
			w.possible[i] = append(w.possible[i], d)
		}
		if first == last {
			w.sure[first] = append(w.sure[first], d)
		}
	}
	return w
}

func (w *clockWindows) of(t time.Duration) int64 { return int64((w.epoch + t) / w.period) }

// part is how much of its window has passed at an instant.
func (w *clockWindows) part(t time.Duration) float64 {
	return float64((w.epoch+t)%w.period) / float64(w.period)
}

// fixedByClock compares with windows of the clock.
func fixedByClock(h *history, p Promise, _ float64) conduct {
	c := conduct{algorithm: "fixed window of the clock", promise: p}
	w := h.byClock(p)
	for _, sure := range w.sure {
		for i := int(p.most()); i < len(sure); i++ {
			c.over = append(c.over, sure[i].answered)
		}
	}
	slices.Sort(c.over)
	for _, d := range h.denied {
		i := w.of(d.sent - grain)
		if i > w.of(0) && i == w.of(d.answered+grain) && within(w.possible[i], d.answered, p.most()) < p.most() {
			c.early = append(c.early, d.sent)
		}
	}
	return c
}

// slidingCounter compares with the counts of two windows of the clock, of which the older one
// counts by the part that is still inside.
func slidingCounter(h *history, p Promise, _ float64) conduct {
	c := conduct{algorithm: "sliding counter", promise: p}
	w := h.byClock(p)
	for i, sure := range w.sure {
		old := int64(len(w.sure[i-1]))
		for n, d := range sure {
			if float64(n+1)+math.Floor(float64(old)*(1-w.part(d.answered+grain))) > float64(p.most())+1e-9 {
				c.over = append(c.over, d.answered)
			}
		}
	}
	slices.Sort(c.over)
	for _, d := range h.denied {
		i := w.of(d.sent - grain)
		if i <= w.of(0)+1 || i != w.of(d.answered+grain) {
			continue
		}
		old, now := float64(len(w.possible[i-1])), float64(within(w.possible[i], d.answered, p.most()))
		if now+math.Ceil(old*(1-w.part(d.sent-grain)))+1 <= float64(p.most()) {
			c.early = append(c.early, d.sent)
		}
	}
	return c
}

// refills is how often an admission came after a denial.
func (h *history) refills() (starts []time.Duration) {
	next := 0
	for i, d := range h.admitted {
		free := time.Duration(0)
		if i > 0 {
			free = h.admitted[i-1].answered
		}
		refused := false
		for next < len(h.denied) && h.denied[next].sent < d.sent {
			refused = refused || h.denied[next].sent >= free
			next++
		}
		if refused {
			starts = append(starts, d.answered)
		}
	}
	return starts
}

// enough is how many times a limit must be seen to become free before it can be known.
const enough = 4

// guess finds a limit and an algorithm that explain every decision, by how the limiter was refilled
// while it was kept busy, which was since an instant. It returns false if there are none, or if too
// little was seen.
func (h *history) guess(busy time.Duration) (conduct, bool) {
	// How precisely the times are known, by how often it was asked.
	const tolerance = 0.05
	if p := h.queue(); len(h.denied) >= enough && p.Burst > 1 && p.Period > slackFor {
		if c := paced(h, p, tolerance); c.faults() == 0 {
			return c, true
		}
	}
	starts := slices.DeleteFunc(h.refills(), func(t time.Duration) bool { return t < busy })
	if len(starts) < enough {
		return conduct{}, false
	}
	last := len(starts) - 1
	n := h.after(starts[last]) - h.after(starts[0])
	if n <= 0 {
		return conduct{}, false
	}
	each := (starts[last] - starts[0]) / time.Duration(n)
	first := within(h.admitted, h.denied[0].answered, math.MaxInt64)
	if first == 1 {
		// Nothing is saved up, so that the time until it was asked again is lost.
		for i := range last {
			each = min(each, starts[i+1]-starts[i])
		}
	}
	var tried []conduct
	// Some units of the first burst may have become free meanwhile.
	for burst := first; burst >= max(1, first-enough); burst-- {
		p := Promise{Count: 1, Period: each, Burst: burst}
		tried = append(tried, bucket(h, p, tolerance))
	}
	// The units of a window may become free in several parts.
	for parts := 1; parts < enough; parts++ {
		p := Promise{Count: first, Period: starts[last] - starts[last-parts]}
		tried = append(tried, fixedFromFirst(h, p, tolerance), sliding(h, p, tolerance))
	}
	for i := range tried {
		if tried[i].faults() == 0 {
			return tried[i], true
		}
	}
	return conduct{}, false
}

// queue is how a queue would have to be: how far departures are apart, and how many wait when one is
// denied.
func (h *history) queue() Promise {
	var gaps []time.Duration
	for i := 1; i < len(h.admitted); i++ {
		gaps = append(gaps, h.admitted[i].answered-h.admitted[i-1].answered)
	}
	slices.Sort(gaps)
	p := Promise{Count: 1, Period: time.Nanosecond, Burst: 1}
	if len(gaps) > 0 {
		p.Period = max(gaps[len(gaps)/2], time.Nanosecond)
	}
	for _, d := range h.denied {
		p.Burst = max(p.Burst, h.sentBefore(h.after(d.sent), d.answered, math.MaxInt64))
	}
	return p
}

// retryErrors are the largest errors of the waits that denials announced, and how many were
// compared with the next admission.
func (h *history) retryErrors() (short, long time.Duration, compared int) {
	for i, d := range h.denied {
		if d.wait <= 0 {
			continue
		}
		n := h.after(d.answered)
		if n < len(h.admitted) && h.soonest[n] <= d.answered {
			continue // An admission that overlaps with the denial may have been decided before it.
		}
		end := len(h.denied)
		if n < len(h.admitted) {
			next := h.admitted[n]
			compared++
			long = max(long, d.sent+d.wait-next.answered)
			end, _ = slices.BinarySearchFunc(h.denied, next.sent, func(a decision, t time.Duration) int { return cmp.Compare(a.sent, t) })
		}
		if end-1 > i {
			short = max(short, h.denied[end-1].sent-d.answered-d.wait)
		}
	}
	return short, long, compared
}
