package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

const (
	ttl   = 10 * time.Second
	grace = 2 * time.Second
	step  = 10_000 // µs
	every = 5_000_000
	start = 1_700_000_000_000_000
)

// proxy is a holder as Envoy is one: it reports every five seconds, applies what it receives, and
// stops when that has ended.
type proxy struct {
	id       string
	offered  float64 // requests per second
	phase    int64
	tokens   float64
	at       int64
	grant    Grant
	ends     int64 // of the grant, by when it was received
	turn     int64
	sent     []sent
	asked    float64 // since the last report
	denied   bool
	passed   int64
	came     int64
	answered int64 // when it was last sent an answer; zero for a new stream
	silent   bool  // it is gone, and does not report
	lossy    float64
	lateness int64
}

type sent struct {
	at int64
	Grant
}

// pass offers requests for one step, and returns how many are admitted.
func (x *proxy) pass(now int64, r *rand.Rand) int64 {
	for len(x.sent) > 0 && x.sent[0].at <= now {
		g := x.sent[0].Grant
		x.sent = x.sent[1:]
		if g.Turn != x.turn || now >= x.ends {
			x.tokens, x.turn = float64(g.Burst), g.Turn
		}
		x.grant, x.ends = g, now+ttl.Microseconds()
	}
	since := float64(now-x.at) / 1e6
	x.at = now
	n := math.Floor(x.offered*since + r.Float64())
	x.asked += n
	x.came += int64(n)
	if now >= x.ends || x.grant.Burst == 0 {
		x.denied = x.denied || n > 0
		return 0
	}
	x.tokens = min(float64(x.grant.Burst), x.tokens+since*float64(x.grant.Rate)/1e9)
	admitted := min(n, math.Floor(x.tokens))
	x.tokens -= admitted
	x.denied = x.denied || admitted < n
	x.passed += int64(admitted)
	return int64(admitted)
}

// world is a pool, its holders, and the oracle over all that they admit.
type world struct {
	t       *testing.T
	limit   Limit
	state   []byte
	proxies []*proxy
	r       *rand.Rand
	now     int64
	streams int
	level   float64 // the largest of all windows that end now: admitted in it less rate times its length
}

// run lets seconds pass.
func (w *world) run(seconds int) {
	w.t.Helper()
	for end := w.now + int64(seconds)*1_000_000; w.now < end; w.now += step {
		w.level = max(0, w.level-float64(w.limit.Rate)/1e9*step/1e6)
		for _, x := range w.proxies {
			w.level += float64(x.pass(w.now, w.r))
			if w.level > float64(w.limit.Burst)+1e-6*float64(w.limit.Burst)+1e-3 {
				w.t.Fatalf("at %v s, some window has %.3f more than its rate, the burst is %d", float64(w.now-start)/1e6, w.level, w.limit.Burst)
			}
			if (w.now-x.phase)%every == 0 && !x.silent {
				w.report(x)
			}
		}
	}
}

func (w *world) report(x *proxy) {
	if w.r.Float64() < x.lossy/2 {
		return // It is late by a turn.
	}
	p, err := Read(w.state)
	if err != nil {
		w.t.Fatal(err)
	}
	fresh := w.now-x.answered >= (ttl - grace).Microseconds()
	g := p.Ask(w.limit, Ask{ID: x.id, Demand: int64(x.asked / 5 * 1e9), Denied: x.denied, Fresh: fresh, TTL: ttl, Grace: grace}, w.now)
	w.state = p.Bytes()
	x.asked, x.denied = 0, false
	switch {
	case w.r.Float64() < x.lossy:
		// Its stream has ended, and it opens another one. It goes on with what it has.
		w.streams++
		x.id, x.answered = fmt.Sprint(x.id, "/", w.streams), 0
	case g.Until == w.now+(ttl+grace).Microseconds():
		x.sent, x.answered = append(x.sent, sent{w.now + w.r.Int64N(x.lateness+1), g}), w.now
	}
}

func newWorld(t *testing.T, l Limit, seed uint64, offered ...float64) *world {
	w := &world{t: t, limit: l, r: rand.New(rand.NewPCG(seed, 1)), now: start}
	for i, o := range offered {
		w.proxies = append(w.proxies, &proxy{id: fmt.Sprint(i), offered: o, at: w.now, phase: start + w.r.Int64N(500)*step})
	}
	return w
}

// share is the part of the limit's rate that the proxies used while seconds passed.
func (w *world) share(seconds int) float64 {
	w.t.Helper()
	sum := int64(0)
	for _, x := range w.proxies {
		sum -= x.passed
	}
	w.run(seconds)
	for _, x := range w.proxies {
		sum += x.passed
	}
	return float64(sum) / float64(seconds) / (float64(w.limit.Rate) / 1e9)
}

// TestNeverTooMuch lets holders come, go, lose answers and change their demand, and holds all
// windows to the limit.
func TestNeverTooMuch(t *testing.T) {
	limits := []Limit{{100 * nano, 100}, {1000 * nano, 50}, {nano, 1}, {nano / 20, 5}, {57_870, 5}, {7 * nano, 300}, {MaxRate, maxBurst}}
	for seed := range uint64(60) {
		w := newWorld(t, limits[seed%uint64(len(limits))], seed)
		rate := float64(w.limit.Rate) / 1e9
		for range 12 {
			switch w.r.IntN(4) {
			case 0, 1:
				x := &proxy{id: fmt.Sprint(len(w.proxies)), at: w.now, phase: w.now + w.r.Int64N(500)*step, lossy: w.r.Float64() / 2, lateness: w.r.Int64N(grace.Microseconds())}
				w.proxies = append(w.proxies, x)
			case 2:
				if len(w.proxies) > 0 {
					w.proxies[w.r.IntN(len(w.proxies))].silent = true
				}
			}
			for _, x := range w.proxies {
				x.offered = rate * []float64{0, 0.1, 1, 3, 50}[w.r.IntN(5)]
			}
			w.run(1 + w.r.IntN(30))
		}
	}
}

// TestFollowsDemand: skewed demand uses the limit, also after it has moved.
func TestFollowsDemand(t *testing.T) {
	large := headgate.Per(1_000_000_000_000, 24*time.Hour)
	day, err := Of(&large)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []Limit{{1000 * nano, 1000}, {100 * nano, 50}, day, {MaxRate, maxBurst}} {
		rate := float64(l.Rate) / 1e9
		w := newWorld(t, l, 1, 1.8*rate, 0.18*rate, 0.02*rate)
		w.run(40)
		if got := w.share(60); got < 0.95 || got > 1 {
			t.Errorf("%+v: %.3f of the limit used, want 0.95 at least", l, got)
		}
		w.proxies[0].offered, w.proxies[2].offered = w.proxies[2].offered, w.proxies[0].offered
		w.run(2 * int(ttl.Seconds()))
		if got := w.share(60); got < 0.9 {
			t.Errorf("%+v: %.3f of the limit used after the demand has moved, want 0.9 at least", l, got)
		}
	}
}

// TestConverges: how long it takes until nine tenths of the limit are used after the demand has moved,
// whenever the holders report.
func TestConverges(t *testing.T) {
	const percent = 100
	took := make([]int, percent)
	for seed := range took {
		w := newWorld(t, Limit{100 * nano, 100}, uint64(seed), 180, 18, 2)
		w.run(60)
		w.proxies[0].offered, w.proxies[2].offered = w.proxies[2].offered, w.proxies[0].offered
		for took[seed] = 1; w.share(1) < 0.9; took[seed]++ {
			if took[seed] == 60 {
				t.Fatalf("seed %d: a minute after the demand has moved, the limit is not used", seed)
			}
		}
	}
	slices.Sort(took)
	t.Logf("after %d, %d and %d s in 50, 90 and 99 of 100 cases", took[percent/2-1], took[percent*9/10-1], took[percent*99/100-1])
	if p99, most := took[percent*99/100-1], int(2*(ttl+grace).Seconds()); p99 > most {
		t.Errorf("it took %d s in 99 of 100 cases, want %d at most, after which two grants have ended", p99, most)
	}
}

// TestHealthyIsAdmitted: what is below the limit is admitted, whoever asks for it.
func TestHealthyIsAdmitted(t *testing.T) {
	w := newWorld(t, Limit{100 * nano, 100}, 1, 50, 20, 5)
	w.run(30)
	came, passed := int64(0), int64(0)
	for _, x := range w.proxies {
		x.came, x.passed = 0, 0
	}
	w.run(300)
	for _, x := range w.proxies {
		came, passed = came+x.came, passed+x.passed
	}
	if 1000*passed < 995*came {
		t.Errorf("%d of %d requests admitted, want 99.5 %% of what is below the limit", passed, came)
	}
}

// TestFewUnits: a handful of units a day reaches those who ask, and no more in all.
func TestFewUnits(t *testing.T) {
	w := newWorld(t, Limit{57_870, 5}, 1, 0, 1, 0, 0, 0)
	w.run(120)
	if got := w.proxies[1].passed; got != 5 {
		t.Errorf("the holder that asks got %d units, want all 5", got)
	}
}

// TestStepBack: a clock that is set back lengthens no grant.
func TestStepBack(t *testing.T) {
	l, p := Limit{100 * nano, 100}, new(Pool)
	a := Ask{ID: "a", Demand: 50 * nano, TTL: ttl, Grace: grace}
	p.Ask(l, a, start)
	p.Ask(l, Ask{ID: "b", Demand: 50 * nano, TTL: ttl, Grace: grace}, start-3_600_000_000)
	for _, h := range p.Holders {
		if most := start - 3_600_000_000 + (ttl + grace).Microseconds(); h.Until > most {
			t.Errorf("the grant of %s ends %d µs too late", h.ID, h.Until-most)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		limit headgate.Limit
		want  Limit
	}{
		{headgate.PerSecond(100), Limit{100 * nano, 100}},
		{headgate.PerSecond(100).WithBurst(20), Limit{100 * nano, 20}},
		{headgate.Sliding(1, time.Second), Limit{nano - 1, 1}},
		{headgate.Sliding(100, time.Minute), Limit{91*nano/60 - 1, 10}},
		{headgate.Per(1_000_000_000_000, 24*time.Hour), Limit{11_574_074_074_074_074, 1_000_000_000_000}},
		{headgate.PerSecond(headgate.MaxCount), Limit{MaxRate, maxBurst}},
	} {
		if got, err := Of(&c.limit); err != nil || got != c.want {
			t.Errorf("%v: %+v, %v, want %+v", &c.limit, got, err, c.want)
		}
	}
	penalty := headgate.Blocking(3, time.Minute, time.Minute, time.Hour)
	if got, err := Of(&penalty); err == nil {
		t.Errorf("a penalty was divided: %+v", got)
	}
}

// TestLendKeepsTail: what a silent holder may have in use stays in use as long as its own limit says,
// whatever the limit of the one who asks next.
func TestLendKeepsTail(t *testing.T) {
	p := new(Pool)
	p.Lend(100, Loan{ID: "a", Want: 100, Lasts: ttl, Tail: time.Hour}, start)
	ended := start + ttl.Microseconds() + 60_000_000
	p.Lend(100, Loan{ID: "b", Want: 1, Lasts: ttl, Tail: time.Second}, ended)
	if got := p.Lend(100, Loan{ID: "c", Want: 100, Lasts: ttl, Tail: time.Hour}, ended); got != 0 {
		t.Errorf("%d units were lent that are in use, want none", got)
	}
}

// TestLendKeepsOldUnits: a grant stays in force until it ends, although the holder is granted more units
// of another limit, which are less of the rate.
func TestLendKeepsOldUnits(t *testing.T) {
	p := new(Pool)
	p.Lend(10, Loan{ID: "a", Want: 9, Lasts: ttl, Tail: time.Second / 10}, start) // nine tenths of the rate
	p.Lend(100, Loan{ID: "a", Want: 20, Lasts: ttl, Tail: time.Second}, start+1)
	if got := p.Lend(100, Loan{ID: "b", Want: 100, Lasts: ttl, Tail: time.Second}, start+2); got > 10 {
		t.Errorf("%d units of 100 were lent while 90 are in use", got)
	}
}

// TestLendLarge: all of the largest limit is lent, to those who want it, and never more.
func TestLendLarge(t *testing.T) {
	for _, total := range []int64{1<<40 - 1, 1 << 40, headgate.MaxCount} {
		p, now, held := new(Pool), int64(start), map[string]int64{}
		for range 100 {
			for _, a := range []Loan{{ID: "a", Want: headgate.MaxCount}, {ID: "b", Want: total / 10}} {
				a.Lasts, a.Tail = time.Second, time.Second
				held[a.ID] = p.Lend(total, a, now)
				if sum := held["a"] + held["b"]; sum > total || sum < 0 {
					t.Fatalf("%d units of %d are lent", sum, total)
				}
			}
			now += 100_000
		}
		if part := float64(held["a"]) / float64(total); part < 0.85 || held["b"] < total/10 {
			t.Errorf("%.3f and %.3f of %d are lent, want nine tenths and one", part, float64(held["b"])/float64(total), total)
		}
	}
	p := new(Pool)
	p.Lend(headgate.MaxCount, Loan{ID: "a", Want: headgate.MaxCount, Lasts: ttl, Tail: time.Second}, start)
	if got := p.Lend(headgate.MaxCount, Loan{ID: "b", Want: headgate.MaxCount, Lasts: ttl, Tail: 3 * time.Second}, start); got != 0 {
		t.Errorf("%d units are lent that may be in use", got)
	}
}
