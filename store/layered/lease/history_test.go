package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// leaseHistories is how many random histories are played. Each lasts a few seconds
// on a clock of its own.
const leaseHistories = 320

// crowd is some nodes that share a store, and all that happens to them.
type crowd struct {
	r     *rand.Rand
	store *memory.Store
	start time.Time
	drift float64 // how much faster the store's clock runs
	calm  bool    // nothing fails, and calls take no time
	plain bool    // nothing is refunded or reset, which loosens what buckets are held to
	books bool    // some is reserved
	nodes []*node
	rules []*headgate.Rule
	keys  []string
	count int64 // of nodes, as they are told

	mu      sync.Mutex // guards all that follows, and r once nodes run
	of      map[counted]*ledgerOf
	charged map[counted]int64 // by leases, less what was served of them or given back
	asking  map[counted]int64 // what callers ask for, and have not been told about
	wrong   []string
	tally   tally
}

// counted names a counter.
type counted struct{ rule, key string }

// tally is what the histories together must have seen.
type tally struct {
	served, denied, fills, returned, failed, crashed, resets, refunds, mixed, reserved int64
}

func (t *tally) add(o tally) {
	t.served += o.served
	t.denied += o.denied
	t.fills += o.fills
	t.returned += o.returned
	t.failed += o.failed
	t.crashed += o.crashed
	t.resets += o.resets
	t.refunds += o.refunds
	t.mixed += o.mixed
}

// node is one process: a lease, and a way to the store that can fail.
type node struct {
	crowd  *crowd
	lease  *lease.Layer
	dead   bool
	strict bool // its rules are not leased: it has not reloaded them yet, or has already
	cut    bool // off from the store
	frozen time.Time
}

// now is the store's clock in microseconds.
func (w *crowd) now() int64 {
	passed := time.Since(w.start)
	return w.start.UnixMicro() + int64(float64(passed.Microseconds())*(1+w.drift))
}

func (w *crowd) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.r.IntN(n)
}

func (w *crowd) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *crowd) ledger(c *headgate.Check) *ledgerOf {
	at := counted{c.Rule.Name(), c.Key}
	g := w.of[at]
	if g == nil {
		g = new(ledgerOf)
		w.of[at] = g
	}
	return g
}

type asked struct{}

// marker is how the store knows that a caller of the test asks, and not a lease for
// itself; it notes when.
type marker struct{ at int64 }

var errCut = fmt.Errorf("%w: cut off", headgate.ErrUnavailable)

// Take implements [headgate.Store]: the way to the store.
func (n *node) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	w := n.crowd
	mark, byCaller := ctx.Value(asked{}).(*marker)
	if byCaller {
		mark.at = w.now()
	}
	w.mu.Lock()
	dead, cut, frozen := n.dead, n.cut, n.frozen
	before, after := time.Duration(0), time.Duration(0)
	failsBefore, failsAfter := dead || cut, false
	if !w.calm {
		before, after = w.latency(), w.latency()
		failsBefore = failsBefore || w.r.IntN(40) == 0
		failsAfter = w.r.IntN(40) == 0
	}
	w.mu.Unlock()
	if byCaller && (op == headgate.OpRefund || op == headgate.OpReset) {
		failsBefore, failsAfter = dead, false
	}
	time.Sleep(time.Until(frozen) + before)
	if failsBefore {
		w.fail()
		return dst, errCut
	}
	fill := op == headgate.OpTake && !byCaller
	if fill {
		w.judgeSize(n, &checks[0])
	}
	out, err := w.store.Take(ctx, op, checks, dst)
	if err != nil {
		w.say("store: %v", err)
		return out, err
	}
	switch {
	case fill && headgate.NewVerdict(out).Allowed:
		w.grow(&checks[0], checks[0].Cost)
	case op == headgate.OpRefund && !byCaller:
		for i := range checks {
			w.grow(&checks[i], -checks[i].Cost)
		}
	}
	time.Sleep(after)
	if failsAfter {
		w.fail()
		return dst, errCut
	}
	return out, nil
}

func (w *crowd) fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.failed++
}

// grow counts units that leases have charged, or given back.
func (w *crowd) grow(c *headgate.Check, units int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.charged[counted{c.Rule.Name(), c.Key}] += units
	if units > 0 {
		w.tally.fills++
	} else {
		w.tally.returned -= units
	}
}

func (w *crowd) latency() time.Duration {
	switch w.r.IntN(12) {
	case 0:
		return time.Duration(w.r.IntN(60_000)) * time.Microsecond
	case 1, 2, 3:
		return time.Duration(w.r.IntN(3_000)) * time.Microsecond
	}
	return 0
}

// judgeSize holds a lease against what a node may hold.
func (w *crowd) judgeSize(n *node, c *headgate.Check) {
	rule := w.rule(c.Rule.Name())
	held := n.lease.HeldOf(rule, c.Key) + c.Cost
	limits := c.Rule.Limits()
	for i := range limits {
		if most := limits[i].Capacity() / (2 * w.count); held > most {
			w.say("%v: a node of %d holds %d, may %d", c.Rule, w.count, held, most)
		}
	}
}

func (w *crowd) rule(name string) *headgate.Rule {
	for _, r := range w.rules {
		if r.Name() == name {
			return r
		}
	}
	return nil
}

// leasableLimit is one that can be leased.
func leasableLimit(r *rand.Rand) headgate.Limit {
	l := headgate.Limit{Count: 40 + r.Int64N(1500), Period: time.Duration(250+r.IntN(1500)) * time.Millisecond}
	switch r.IntN(6) {
	case 0:
		l.Algorithm = headgate.SlidingWindow
	case 1:
		l.Algorithm = headgate.FixedWindow
	case 2:
		l.Algorithm = headgate.SlidingCounter
	default:
		l.Burst = l.Count/2 + r.Int64N(l.Count)
	}
	return l
}

func newCrowd(t testing.TB, seed uint64) *crowd {
	r := rand.New(rand.NewPCG(seed, 5))
	w := &crowd{
		r: r, start: time.Now(), drift: float64(r.IntN(401)-200) / 100_000, calm: r.IntN(3) == 0, plain: r.IntN(4) != 0,
		of: map[counted]*ledgerOf{}, charged: map[counted]int64{}, asking: map[counted]int64{}, keys: []string{"a", "b"}[:1+r.IntN(2)],
	}
	w.store = memory.New(memory.Clock(w.now))
	for i := range 1 + r.IntN(2) {
		limits := []headgate.Limit{leasableLimit(r)}
		if r.IntN(3) == 0 {
			limits = append(limits, leasableLimit(r))
		}
		w.rules = append(w.rules, headgate.MustRule(fmt.Sprint("rule", i), limits...))
	}
	w.count = 1 + int64(r.IntN(16))
	for range w.count {
		n := &node{crowd: w}
		n.lease = openUnclosed(t, ledgerNode{n, w.store}, lease.Options{Nodes: func() int64 { return w.count }})
		w.nodes = append(w.nodes, n)
	}
	return w
}

// request is what a node is asked: mostly one leased check of the cost, or of a little
// more; sometimes a strict one, a shadow or another rule besides.
func (w *crowd) request(cost int64) []headgate.Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := headgate.Check{Rule: w.rules[w.r.IntN(len(w.rules))], Key: w.keys[w.r.IntN(len(w.keys))], Cost: cost, Hints: headgate.Hints{Consistency: headgate.Leased}}
	if w.r.IntN(8) == 0 {
		c.Cost += w.r.Int64N(4)
	}
	checks := []headgate.Check{c}
	if w.r.IntN(10) == 0 {
		w.tally.mixed++
		other := headgate.Check{Rule: strictRule, Key: "s", Shadow: w.r.IntN(3) == 0}
		if len(w.rules) > 1 && w.r.IntN(2) == 0 {
			other = headgate.Check{Rule: w.rules[0], Key: c.Key, Hints: headgate.Hints{Consistency: headgate.Leased}, Shadow: w.r.IntN(3) == 0}
			checks[0].Rule = w.rules[1]
		}
		checks = append(checks, other)
	}
	return checks
}

var strictRule = headgate.MustRule("strict", headgate.Limit{Count: 300, Period: time.Second, Burst: 30})

// ask notes what a caller asks for, or with a sign of -1 that it was told.
func (w *crowd) ask(checks []headgate.Check, sign int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.askLocked(checks, sign)
}

func (w *crowd) askLocked(checks []headgate.Check, sign int64) {
	for i := range checks {
		w.asking[counted{checks[i].Rule.Name(), checks[i].Key}] += sign * checks[i].Units()
	}
}

// do makes one request of a node, and reports whether it was admitted.
func (w *crowd) do(n *node, checks []headgate.Check) bool {
	mark := new(marker)
	ctx := context.WithValue(context.Background(), asked{}, mark)
	w.loaded(n, checks)
	w.ask(checks, 1)
	out, err := n.lease.Store().Take(ctx, headgate.OpTake, checks, nil)
	if err != nil {
		w.ask(checks, -1)
		if !errors.Is(err, headgate.ErrUnavailable) {
			w.say("%v", err)
		}
		return false
	}
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.askLocked(checks, -1)
	admitted := headgate.NewVerdict(out).Allowed
	refused := map[int]bool{}
	first := map[int]*headgate.Decision{}
	for i := range out {
		d := &out[i]
		if d.Rule != checks[d.Check].Rule {
			w.wrong = append(w.wrong, fmt.Sprintf("a decision of %v for a check of %v", d.Rule, checks[d.Check].Rule))
		}
		refused[d.Check] = refused[d.Check] || !d.Allowed
		if first[d.Check] == nil {
			first[d.Check] = d
		}
		if !d.Allowed && !d.Shadow {
			w.tally.denied++
			w.judgeDenial(&checks[d.Check], d)
		}
	}
	if !admitted {
		return false
	}
	for i := range checks {
		c := &checks[i]
		if refused[i] {
			continue
		}
		at := first[i].At
		if first[i].Source == headgate.SourceLease {
			at = headgate.Instant(now)
			if mark.at != 0 { // The rest of the request was asked then.
				at = headgate.Instant(mark.at)
			}
			w.charged[counted{c.Rule.Name(), c.Key}] -= c.Units()
			w.tally.served++
		}
		w.ledger(c).admit(int64(at), c.Units())
	}
	// Some are given back at once, or a little later.
	if c := &checks[0]; !w.plain && len(checks) == 1 && w.r.IntN(60) == 0 && !n.dead {
		back := *c
		back.At = first[0].At
		w.mu.Unlock()
		time.Sleep(time.Duration(w.roll(3)) * time.Millisecond)
		_, err := n.lease.Store().Take(ctx, headgate.OpRefund, []headgate.Check{back}, nil)
		w.mu.Lock()
		if err == nil {
			w.refunded(c, now, first[0])
		}
	}
	return true
}

// refunded takes an admission back, and notes what a plain refund may have given a
// bucket twice.
func (w *crowd) refunded(c *headgate.Check, now int64, d *headgate.Decision) {
	g := w.ledger(c)
	at := d.At
	if d.Source == headgate.SourceLease {
		at = headgate.Instant(now)
	}
	if i := slices.Index(g.admitted, passage{int64(at), c.Units()}); i >= 0 {
		g.admitted = slices.Delete(g.admitted, i, i+1)
	}
	w.tally.refunds++
	g.gifts += c.Units()
}

// play has a few things happen one after another.
func (w *crowd) play() {
	for range 4 + w.roll(6) {
		alive := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n.dead })
		if len(alive) == 0 {
			return
		}
		one := alive[w.roll(len(alive))]
		switch w.roll(12) {
		case 0, 1, 2, 3:
			// After a silence one node warms up, holds what it took, and all come at once.
			time.Sleep(time.Duration(w.roll(2000)) * time.Millisecond)
			w.drip(one)
			time.Sleep(time.Duration(w.roll(20_000)) * time.Microsecond)
			w.stampede(alive)
		case 4, 5:
			var all sync.WaitGroup
			for _, n := range alive {
				all.Go(func() { w.drip(n) })
			}
			all.Wait()
		case 6, 7:
			w.stampede(alive)
		case 8:
			time.Sleep(time.Duration(w.roll(1500)) * time.Millisecond)
		case 9:
			w.trouble(one)
		case 10:
			w.crash(one)
		default:
			w.reset(one)
		}
	}
}

// drip asks a node for a while, at about the rate that a limit refills at, or faster.
func (w *crowd) drip(n *node) {
	l := w.rules[w.roll(len(w.rules))].Limits()[0]
	pause := l.Period / time.Duration(l.Count) * time.Duration(20+w.roll(100)) / 100
	for range 20 + w.roll(60) {
		w.do(n, w.request(1))
		if w.books && w.roll(10) == 0 {
			w.reserve(n)
		}
		time.Sleep(pause)
	}
}

// stampede has several callers on each node until they are denied, whatever little
// they ask for.
func (w *crowd) stampede(nodes []*node) {
	var all sync.WaitGroup
	for _, n := range nodes {
		for range 1 + w.roll(2) {
			late := time.Duration(w.roll(1000)) * time.Microsecond
			all.Go(func() {
				time.Sleep(late)
				cost := int64(1 + w.roll(100))
				for denied := 0; denied < 2; {
					switch {
					case w.do(n, w.request(cost)):
					case cost > 1:
						cost /= 4
					default:
						denied++
						time.Sleep(time.Duration(w.roll(4000)) * time.Microsecond)
					}
					cost = max(1, cost)
				}
			})
		}
	}
	all.Wait()
}

// trouble cuts a node off for a while, or holds it up.
func (w *crowd) trouble(n *node) {
	if w.calm {
		return
	}
	w.mu.Lock()
	if w.r.IntN(2) == 0 {
		n.cut = true
	} else {
		n.frozen = time.Now().Add(time.Duration(w.r.IntN(300)) * time.Millisecond)
	}
	w.mu.Unlock()
	for range 40 {
		w.do(n, w.request(1))
		time.Sleep(time.Millisecond)
	}
	w.mu.Lock()
	n.cut = false
	w.mu.Unlock()
}

// crash ends a node: nothing of it reaches the store any more.
func (w *crowd) crash(n *node) {
	if w.calm || w.roll(2) == 0 {
		return
	}
	w.drip(n)
	w.mu.Lock()
	n.dead = true
	w.tally.crashed++
	w.mu.Unlock()
}

// reset has the store forget a key.
func (w *crowd) reset(n *node) {
	if w.plain {
		return
	}
	c := w.request(1)[0]
	c.Cost = 0
	ctx := context.WithValue(context.Background(), asked{}, new(marker))
	w.drip(n)
	before := w.loose(&c)
	if _, err := n.lease.Store().Take(ctx, headgate.OpReset, []headgate.Check{c}, nil); err != nil {
		w.say("reset: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.ledger(&c)
	g.resets = append(g.resets, w.now())
	g.loose = max(g.loose, before)
	w.tally.resets++
}

// loose is what leases have charged of a key, and neither served nor given back.
func (w *crowd) loose(c *headgate.Check) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.charged[counted{c.Rule.Name(), c.Key}]
}

// finish ends all nodes and returns what was wrong.
func (w *crowd) finish() []string {
	for _, n := range w.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := n.lease.Close(ctx); err != nil && w.calm {
			w.say("close: %v", err)
		}
		cancel()
	}
	for at, g := range w.of {
		rule := w.rule(at.rule)
		if rule == nil {
			rule = strictRule
		}
		for i := range rule.Limits() {
			if text := g.over(&rule.Limits()[i]); text != "" {
				w.wrong = append(w.wrong, fmt.Sprintf("OVER-ADMITTED %v %s: %s", rule, at.key, text))
			}
		}
		if w.calm && !hasBucket(rule) && len(g.resets) == 0 && w.charged[at] != 0 {
			w.wrong = append(w.wrong, fmt.Sprintf("%v %s: %d units were charged, and neither served nor given back", rule, at.key, w.charged[at]))
		}
	}
	return w.wrong
}

// TestLeaseHistories plays random histories of 1 to 16 nodes on one store. Whatever
// fails, no limit may ever admit more than its own rule allows, by the times at
// which callers were told to go ahead; and where nothing fails, no request may be
// denied earlier than the documents say.
func TestLeaseHistories(t *testing.T) {
	histories := storetest.Steps(t, 100*race.Fewer(leaseHistories)) / 100 // one counts as a hundred steps
	var all tally
	for seed := range uint64(histories) {
		bubbletest.Test(t, func(t *testing.T) {
			w := newCrowd(t, seed)
			w.play()
			wrong := w.finish()
			for i, text := range wrong {
				if i == 5 {
					break
				}
				t.Errorf("history %d (%d nodes, calm: %v): %s", seed, w.count, w.calm, text)
			}
			all.add(w.tally)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", all)
	for name, n := range map[string]int64{
		"served by leases": all.served, "denied": all.denied, "leases": all.fills, "given back": all.returned,
		"failed calls": all.failed, "crashes": all.crashed, "resets": all.resets, "refunds": all.refunds, "mixed": all.mixed,
	} {
		if n < max(1, int64(histories)/20) {
			t.Errorf("%s: only %d in %d histories, which prove nothing of it", name, n, histories)
		}
	}
}
