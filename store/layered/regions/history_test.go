package regions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/layered/regions"
	"github.com/headgate/headgate/store/memory"
)

// far is a home whose documents can be lost, or set back to what they were.
type far struct {
	mu    sync.Mutex
	kept  map[string][]byte
	old   []map[string][]byte // what was kept in the last seconds, the newest last
	saved map[string][]byte   // a backup
	clock time.Duration       // what its clock is wrong by
	calls atomic.Int64
}

// link is the line of a region to the home.
type link struct {
	home  *far
	mu    sync.Mutex
	rng   *rand.Rand
	delay time.Duration // of a call
	loss  float64
	cut   bool
}

var errCut = fmt.Errorf("%w: cut off", headgate.ErrUnavailable)

// cross lets a call cross the line, and reports whether it arrives, and its answer, which takes as
// long.
func (l *link) cross(ctx context.Context) (there, back bool, way time.Duration) {
	l.mu.Lock()
	way, loss, lost, cut := l.delay/2, l.loss, l.rng.Float64(), l.cut
	l.mu.Unlock()
	if cut {
		time.Sleep(300 * time.Millisecond)
		return false, false, way
	}
	select {
	case <-time.After(way):
	case <-ctx.Done():
	}
	return lost >= loss/2, lost >= loss, way
}

func (l *link) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	_, back, way := l.cross(ctx)
	l.home.mu.Lock()
	l.home.calls.Add(1)
	d, err := store.ParseDocument(key, l.home.kept[key], headgate.Instant(time.Now().Add(l.home.clock).UnixMicro()))
	l.home.mu.Unlock()
	time.Sleep(way)
	if !back || ctx.Err() != nil {
		return d, errCut
	}
	return d, err
}

func (l *link) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	if err := store.ValidateDocument(&read, value, ttl); err != nil {
		return false, err
	}
	there, back, way := l.cross(ctx)
	wrote := false
	if there {
		l.home.mu.Lock()
		l.home.calls.Add(1)
		if now, _ := store.ParseDocument(read.Key, l.home.kept[read.Key], 0); now.Version == read.Version {
			l.home.kept[read.Key], wrote = store.NewDocument(value), true
		}
		l.home.mu.Unlock()
	}
	time.Sleep(way)
	if !back || ctx.Err() != nil {
		return false, errCut
	}
	return wrote, nil
}

// remember keeps what a failover may set the home back to.
func (f *far) remember() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = append(f.old, maps.Clone(f.kept))
	if len(f.old) > 4 { // of 100 ms each
		f.old = f.old[1:]
	}
}

// process is one process of a region.
type process struct {
	layer *regions.Layer
	rule  *headgate.Rule
	asked headgate.Store // the outermost layer
	close func()
	// stuck is until when what keeps the shares stands still in this process, and decisions go on.
	stuck atomic.Int64
}

// documents are those that a process reads and writes. What it writes while it stands still arrives
// afterwards.
type documents struct {
	store.Documents
	of *process
}

func (d documents) wait() {
	time.Sleep(time.Until(time.UnixMicro(d.of.stuck.Load())))
}

func (d documents) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	d.wait()
	read, err := d.Documents.ReadDocument(ctx, key)
	d.wait()
	return read, errors.Join(err, ctx.Err())
}

func (d documents) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	d.wait()
	wrote, err := d.Documents.WriteDocument(context.WithoutCancel(ctx), read, value, ttl)
	d.wait()
	return wrote && ctx.Err() == nil, errors.Join(err, ctx.Err())
}

// near is the region's store of a process.
type near struct {
	*memory.Store
	documents
}

func (n near) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	return n.documents.ReadDocument(ctx, key)
}

func (n near) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	return n.documents.WriteDocument(ctx, read, value, ttl)
}

// board is a region's store, the documents of which may refuse to be written.
type board struct {
	*memory.Store
	full atomic.Bool
}

func (b *board) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	if b.full.Load() {
		return false, errCut
	}
	return b.Store.WriteDocument(ctx, read, value, ttl)
}

type region struct {
	name      string
	store     *board
	clock     atomic.Int64 // what its clock is wrong by
	link      *link
	processes [2]*process
	offered   float64 // requests a second
	due       float64
	asked     int64
	admitted  int64
}

// cut cuts the region off from the home, or ends that.
func (r *region) cut(is bool) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.link.cut = is
}

type passage struct {
	at    time.Time
	units int64
}

// held is a reservation that is still to be settled, for the passage with that number.
type held struct {
	process  *process
	made     headgate.Reservation
	passage  int
	settleAt time.Time
}

// world is three regions and their home, and the oracle of all that they admit.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	home    *far
	regions []*region
	all     []passage
	names   []string
	limit   headgate.Limit // the largest in force
	floor   int
	cost    int64
	lease   time.Duration
	more    []headgate.Limit // of the same rule
	reserve int              // reservations in 100 requests
	settle  time.Duration    // the longest time after which they are settled
	open    []held
	leased  bool // units are taken in advance by each process, and denials remembered
}

func newWorld(t *testing.T, seed uint64, limit headgate.Limit, floor int, lease time.Duration, more ...headgate.Limit) *world {
	w := &world{t: t, more: more, rng: rand.New(rand.NewPCG(seed, 7)), home: &far{kept: map[string][]byte{}}, limit: limit, floor: floor, cost: 1, lease: lease, settle: 8 * time.Second}
	w.names = []string{"eu", "us", "ap"}
	for i, name := range w.names {
		r := &region{name: name}
		r.store = &board{Store: memory.New(memory.Clock(func() int64 { return time.Now().Add(time.Duration(r.clock.Load())).UnixMicro() }))}
		r.link = &link{home: w.home, rng: rand.New(rand.NewPCG(seed, uint64(i))), delay: []time.Duration{2, 80, 150}[i] * time.Millisecond}
		w.regions = append(w.regions, r)
		for j := range r.processes {
			w.start(r, j)
		}
	}
	t.Cleanup(func() {
		for _, r := range w.regions {
			for _, p := range r.processes {
				p.close()
			}
		}
	})
	return w
}

// rule is a rule with the limit, and the others that are not changed.
func (w *world) rule(l headgate.Limit) *headgate.Rule {
	return headgate.MustRule("r", append([]headgate.Limit{l}, w.more...)...)
}

func (w *world) start(r *region, i int) {
	rule := w.rule(w.limit)
	if old := r.processes[i]; old != nil {
		old.close()
		rule = old.rule
	}
	p := &process{rule: rule}
	own := near{r.store.Store, documents{r.store, p}}
	l, err := regions.New(r.store, regions.Options{Region: r.name, Regions: w.names, Store: own, Home: documents{r.link, p}, Lease: w.lease, Floor: w.floor})
	if err != nil {
		w.t.Fatal(err)
	}
	p.layer, p.asked = l, l.Store()
	p.close = func() { _ = l.Close(context.Background()) }
	if w.leased {
		leases, err := lease.New(p.asked, lease.Options{Nodes: func() int64 { return 2 }})
		if err != nil {
			w.t.Fatal(err)
		}
		denials, err := denycache.New(leases.Store(), denycache.Options{All: true})
		if err != nil {
			w.t.Fatal(err)
		}
		p.asked = denials.Store()
		p.close = func() {
			_ = denials.Close(context.Background())
			_ = leases.Close(context.Background())
			_ = l.Close(context.Background())
		}
	}
	r.processes[i] = p
}

// run offers requests for a while.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	const step = 10 * time.Millisecond
	for n := range int(d / step) {
		time.Sleep(step)
		if n%10 == 0 {
			w.home.remember()
		}
		for _, r := range w.regions {
			for r.due += r.offered * step.Seconds(); r.due >= 1; r.due-- {
				p := r.processes[w.rng.IntN(2)]
				c := headgate.Check{Rule: p.rule, Key: "k", Cost: w.cost, Hints: headgate.Hints{Scope: headgate.Global}}
				if w.leased {
					c.Consistency = headgate.Leased
				}
				if w.rng.IntN(100) < w.reserve {
					w.take(r, p, c)
					continue
				}
				out, err := p.asked.Take(context.Background(), headgate.OpTake, []headgate.Check{c}, nil)
				if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
					w.t.Fatal(err)
				}
				r.asked++
				if err == nil && headgate.NewVerdict(out).Allowed {
					r.admitted++
					w.all = append(w.all, passage{time.Now(), w.cost})
				}
			}
		}
	}
}

// take reserves units, and settles what was reserved before for none, for less or for the same.
func (w *world) take(r *region, p *process, c headgate.Check) {
	w.t.Helper()
	if len(w.open) > 0 && !w.open[0].settleAt.After(time.Now()) {
		o := w.open[0]
		w.open = w.open[1:]
		ledger, _ := o.process.asked.(headgate.Ledger)
		units := w.rng.Int64N(w.cost + 1)
		if _, err := ledger.Settle(context.Background(), o.made, []int64{units}, nil); err == nil {
			w.all[o.passage].units = units
		}
	}
	ledger, _ := p.asked.(headgate.Ledger)
	made, out, err := ledger.Reserve(context.Background(), headgate.Terms{}, []headgate.Check{c}, nil)
	r.asked++
	if err == nil && headgate.NewVerdict(out).Allowed {
		r.admitted++
		w.open = append(w.open, held{p, made, len(w.all), time.Now().Add(time.Duration(w.rng.Int64N(int64(w.settle))))})
		w.all = append(w.all, passage{time.Now(), w.cost})
	}
}

// over is the most that was admitted in a window of the limit beyond it.
func (w *world) over(l *headgate.Limit) float64 {
	worst, level, sum, first := 0.0, 0.0, int64(0), 0
	rate := float64(l.Count) / (float64(l.Micros()) / 1e6)
	period := time.Duration(l.Micros()) * time.Microsecond
	exact := max(1e-6, float64(l.Capacity())*1e-12) // as far as float64 is
	for i, p := range w.all {
		sum += p.units
		switch l.Algorithm {
		case headgate.TokenBucket:
			if i > 0 {
				level = max(0, level-rate*p.at.Sub(w.all[i-1].at).Seconds())
			}
			level += float64(p.units)
			worst = max(worst, level-float64(l.Capacity())-exact)
		case headgate.SlidingCounter:
			since := p.at.Sub(p.at.Truncate(period))
			if i > 0 && w.all[i-1].at.Truncate(period) != p.at.Truncate(period) {
				level, sum = float64(sum-p.units), p.units
				if p.at.Truncate(period).Sub(w.all[i-1].at.Truncate(period)) > period {
					level = 0
				}
			}
			worst = max(worst, level*(1-since.Seconds()/period.Seconds())+float64(sum-l.Count)-exact)
		case headgate.FixedWindow:
			for w.all[first].at.Truncate(period) != p.at.Truncate(period) {
				sum -= w.all[first].units
				first++
			}
			worst = max(worst, float64(sum-l.Count))
		default:
			for p.at.Sub(w.all[first].at) >= period {
				sum -= w.all[first].units
				first++
			}
			worst = max(worst, float64(sum-l.Count))
		}
	}
	return worst
}

// used is the part of the limit that is admitted while time passes.
func (w *world) used(d time.Duration) float64 {
	w.t.Helper()
	w.all = w.all[:0]
	w.run(d)
	sum := int64(0)
	for _, p := range w.all {
		sum += p.units
	}
	return float64(sum) / (float64(w.limit.Count) / (float64(w.limit.Micros()) / 1e6) * d.Seconds())
}

func window(a headgate.Algorithm, n int64, period time.Duration) headgate.Limit {
	return headgate.Limit{Algorithm: a, Count: n, Period: period}
}

// TestNeverTooMuch breaks the lines, kills processes, loses and sets back what the home knows, steps
// clocks and changes the limit, at random, and holds all that is admitted to the limit.
func TestNeverTooMuch(t *testing.T) {
	limits := []headgate.Limit{
		headgate.PerSecond(100), headgate.PerSecond(50).WithBurst(200), headgate.Per(30, 10*time.Second).WithBurst(5), headgate.Per(60, 2*time.Minute),
		headgate.Sliding(100, time.Second), headgate.Sliding(40, 30*time.Second), headgate.Sliding(5, time.Hour),
		window(headgate.FixedWindow, 60, 20*time.Second), window(headgate.FixedWindow, 5, 24*time.Hour), window(headgate.SlidingCounter, 100, 10*time.Second),
		headgate.Per(60_000_000_000_000, time.Minute), headgate.Per(10_000_000_000_000, 24*time.Hour), window(headgate.FixedWindow, 2_000_000_000_000_000, 20*time.Second),
	}
	for seed := range uint64(race.Fewer(24)) {
		if v := os.Getenv("SEEDS"); v != "" {
			n, _ := strconv.Atoi(v)
			seed += uint64(n)
		}
		limit := limits[seed%uint64(len(limits))]
		t.Run(fmt.Sprint(seed, " ", &limit), func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) { anything(t, seed, limit) })
		})
	}
}

func anything(t *testing.T, seed uint64, limit headgate.Limit) {
	var more []headgate.Limit
	if seed%2 == 1 {
		more = append(more, headgate.Per(4*limit.Count, 5*limit.Period).WithBurst(limit.Capacity()))
	}
	w := newWorld(t, seed, limit, []int{0, 2, 10, 33}[seed/8%4], 4*time.Second, more...)
	if w.leased = seed%5 < 2; w.leased {
		for _, r := range w.regions {
			for i := range r.processes {
				w.start(r, i)
			}
		}
	}
	// A unit, some, or more than a region's own.
	w.cost = []int64{1 + limit.Capacity()/5_000_000_000, 1 + limit.Capacity()/40, 1 + limit.Capacity()/3_000_000_000_000, 1 + limit.Capacity()/3}[seed/3%4]
	w.reserve = 30 * int(seed/5%2)
	rate := float64(limit.Count) / (float64(limit.Micros()) / 1e6)
	aligned := limit.Algorithm == headgate.FixedWindow || limit.Algorithm == headgate.SlidingCounter // Whose windows are the clock's.
	for range 60 {
		r := w.regions[w.rng.IntN(3)]
		r.store.full.Store(w.rng.IntN(8) == 0)
		switch w.rng.IntN(16) {
		case 9, 10: // Its leader stands still for so long that another process leads.
			stuck := time.Now().Add(time.Duration(w.rng.IntN(12000)) * time.Millisecond).UnixMicro()
			r.processes[w.rng.IntN(2)].stuck.Store(stuck)
			if w.rng.IntN(2) == 0 {
				w.home.fail()
			}
		case 11: // Other settings begin in one process.
			if seed%3 == 0 {
				w.lease, w.floor = time.Duration(3+w.rng.IntN(3))*time.Second, []int{0, 2, 10, 33}[w.rng.IntN(4)]
				w.start(r, w.rng.IntN(2))
			}
		case 12: // The settings reach all of a region.
			for i := range r.processes {
				w.start(r, i)
			}
		case 13: // The region comes back, maybe after its lease, with another clock.
			for _, p := range r.processes {
				p.close()
			}
			r.offered = 0
			if !aligned {
				r.clock.Add(-int64(time.Duration(w.rng.IntN(20000)) * time.Millisecond))
			}
			w.run(time.Duration(w.rng.IntN(10000)) * time.Millisecond)
			for i := range r.processes {
				w.start(r, i)
			}
		case 14:
			w.home.save()
		case 15:
			w.home.restore()
		case 0, 1:
			r.link.mu.Lock()
			r.link.cut = !r.link.cut
			r.link.mu.Unlock()
		case 2:
			r.link.mu.Lock()
			r.link.loss, r.link.delay = w.rng.Float64()/2, time.Duration(w.rng.IntN(400))*time.Millisecond
			r.link.mu.Unlock()
		case 3:
			w.start(r, w.rng.IntN(2))
		case 4:
			if w.rng.IntN(3) == 0 {
				w.home.lose()
			}
		case 5:
			w.home.fail()
		case 6:
			w.home.mu.Lock()
			w.home.clock += time.Duration(w.rng.IntN(7200)-3600) * time.Second
			w.home.mu.Unlock()
		case 7:
			if !aligned {
				r.clock.Add(-int64(time.Duration(w.rng.IntN(5000)) * time.Millisecond))
			}
		case 8:
			changed := limit
			changed.Count = max(1, limit.Count*int64(1+w.rng.IntN(4))/4)
			for _, p := range r.processes {
				if w.rng.IntN(4) > 0 { // The other process has the new version later.
					p.rule = w.rule(changed)
				}
			}
		}
		for _, r := range w.regions {
			r.offered = max(1, min(300, rate*[]float64{0, 0.1, 0.9, 3}[w.rng.IntN(4)]))
		}
		w.run(time.Duration(500+w.rng.IntN(6000)) * time.Millisecond)
	}
	for _, limit := range append(more, limit) {
		if over := w.over(&limit); over > 0 {
			t.Errorf("some window has %.3f units more than %v, of %d admitted in all", over, &limit, len(w.all))
		}
	}
}

// lose has the home forget all.
func (f *far) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.kept)
}

// save keeps a backup, and restore sets the home back to it.
func (f *far) save() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved = maps.Clone(f.kept)
}

func (f *far) restore() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saved != nil {
		f.kept = maps.Clone(f.saved)
	}
}

// fail has the home forget what it was told in the last moments.
func (f *far) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.old) > 0 {
		f.kept = maps.Clone(f.old[0])
	}
}

// TestHomeLosesAll: a home that has lost its data lends nothing that may still be used.
func TestHomeLosesAll(t *testing.T) {
	for range race.Fewer(8) { // The processes do not ask in the same moments.
		bubbletest.Test(t, homeLosesAll)
	}
}

func homeLosesAll(t *testing.T) {
	limit := headgate.Sliding(100, time.Second)
	w := newWorld(t, 1, limit, 2, 10*time.Second)
	w.regions[0].offered = 200
	w.run(20 * time.Second)
	before := w.regions[0].admitted
	cut := func(i int, is bool) {
		l := w.regions[i].link
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cut = is
	}
	// The first region comes first to the new home, and does not learn that nothing is lent to it.
	cut(1, true)
	cut(2, true)
	w.regions[0].store.full.Store(true)
	w.home.lose()
	for range 1000 {
		w.home.mu.Lock()
		came := len(w.home.kept) > 0
		w.home.mu.Unlock()
		if came {
			break
		}
		w.run(10 * time.Millisecond)
	}
	cut(0, true)
	cut(1, false)
	cut(2, false)
	w.regions[1].offered = 200
	w.run(20 * time.Second)
	if got := w.regions[0].admitted - before; got < 200 {
		t.Errorf("the region that cannot be told used %d units, want those of its lease", got)
	}
	if over := w.over(&limit); over > 0 {
		t.Errorf("some second has %.0f units too many", over)
	}
}

// TestHomeRestored: a home that is set back to a backup forgets what it has lent since, to a region that
// is cut off now. Another one notices, and nothing is lent before that lease is over.
func TestHomeRestored(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.Sliding(100, time.Second)
		w := newWorld(t, 1, limit, 2, 10*time.Second)
		for _, r := range w.regions {
			r.offered = 1
		}
		w.run(20 * time.Second)
		w.home.save()
		w.regions[0].offered = 200
		w.run(20 * time.Second)
		w.regions[0].cut(true)
		w.home.restore()
		w.regions[1].offered = 200
		w.run(15 * time.Second)
		w.regions[0].cut(false)
		w.run(35 * time.Second)
		if over := w.over(&limit); over > 0 {
			t.Errorf("some second has %.0f units too many", over)
		}
		// In one lease chance decides much: of 150 runs, one used 0.85 of 10 s, and none less than 0.95 of 30 s.
		if got := w.used(30 * time.Second); got < 0.9 {
			t.Errorf("%.2f of the limit is used when the home knows all again, want 0.9", got)
		}
	})
}

// TestLeasedShares: processes that take units of their region's share in advance use the limit.
func TestLeasedShares(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.PerSecond(500)
		w := newWorld(t, 1, limit, 2, 10*time.Second)
		w.leased = true
		for i, r := range w.regions {
			r.offered = []float64{900, 90, 10}[i]
			for j := range r.processes {
				w.start(r, j)
			}
		}
		w.run(20 * time.Second)
		got := w.used(30 * time.Second)
		t.Logf("%.3f of the limit is used", got)
		if got < 0.9 {
			t.Errorf("%.3f of the limit is used, want 0.9", got)
		}
		if over := w.over(&limit); over > 0 {
			t.Errorf("some time has %.3f units too many, of %d", over, len(w.all))
		}
	})
}

// TestHomeFailsOver: what a home lends, and forgets at once, is not used.
func TestHomeFailsOver(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.Sliding(100, time.Second)
		w := newWorld(t, 1, limit, 2, 10*time.Second)
		for _, r := range w.regions {
			r.offered = 1
		}
		w.run(20 * time.Second)
		lends := func() bool {
			w.home.mu.Lock()
			defer w.home.mu.Unlock()
			for _, d := range w.home.kept {
				if bytes.Contains(d, []byte(`"b":9`)) || bytes.Contains(d, []byte(`"b":8`)) {
					return true
				}
			}
			return false
		}
		w.regions[0].offered = 200
		for range 1000 {
			if w.run(10 * time.Millisecond); lends() {
				break
			}
		}
		if !lends() {
			t.Fatal("nothing was lent")
		}
		w.home.fail()
		w.regions[0].link.mu.Lock()
		w.regions[0].link.cut = true
		w.regions[0].link.mu.Unlock()
		w.regions[1].offered = 200
		w.run(10 * time.Second)
		if w.regions[1].admitted < 100 {
			t.Errorf("the other region was admitted %d units, want what is lent to it", w.regions[1].admitted)
		}
		if over := w.over(&limit); over > 0 {
			t.Errorf("some second has %.0f units too many", over)
		}
	})
}

// TestSettingsAndBack: regions get other settings one after another, and the ones before again. What
// was lent by the others is over before anything is lent, or a floor is larger.
func TestSettingsAndBack(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.Sliding(100, time.Second)
		w := newWorld(t, 1, limit, 2, 4*time.Second)
		for _, r := range w.regions {
			r.offered = 200
		}
		restart := func(r *region) {
			for i := range r.processes {
				w.start(r, i)
			}
		}
		w.run(12 * time.Second)
		for _, next := range []struct {
			lease time.Duration
			floor int
		}{{5 * time.Second, 2}, {4 * time.Second, 2}, {4 * time.Second, 33}, {4 * time.Second, 0}, {5 * time.Second, 30}} {
			w.lease, w.floor = next.lease, next.floor
			for i := range w.regions {
				restart(w.regions[i])
				w.run(3 * time.Second)
			}
			w.run(15 * time.Second)
			before := len(w.all)
			w.run(5 * time.Second)
			if got := len(w.all) - before; got < 450 {
				t.Errorf("with a lease of %v and a floor of %d for all, %d of 500 units were used in five seconds", next.lease, next.floor, got)
			}
		}
		w.regions[0].cut(true)
		w.run(10 * time.Second)
		before := w.regions[0].admitted
		w.run(5 * time.Second)
		if got := w.regions[0].admitted - before; got < 140 {
			t.Errorf("a region that is cut off used %d units in five seconds, want its floor of 30 a second", got)
		}
		if over := w.over(&limit); over > 0 {
			t.Errorf("some second has %.0f units too many", over)
		}
	})
}

// TestShares: the process that asks the home knows who has what, until the lease has ended.
func TestShares(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, headgate.PerSecond(100), 2, 4*time.Second)
		w.regions[0].offered, w.regions[2].offered = 60, 20
		w.run(15 * time.Second)
		shares := func() []regions.Share {
			return append(w.regions[0].processes[0].layer.Shares(), w.regions[0].processes[1].layer.Shares()...)
		}
		all := shares()
		if len(all) != 1 || all[0].Own != 2 || all[0].Lent["eu"] < 58 || all[0].Lent["ap"] < 18 || all[0].Lent["us"] != 0 || all[0].Demand < 55 || all[0].Demand > 65 || all[0].Since < time.Second {
			t.Errorf("the shares are %+v, want one, of a demand of 60 that is met", all)
		}
		w.regions[0].cut(true)
		w.run(6 * time.Second)
		if all := shares(); len(all) != 0 {
			t.Errorf("after the lease, the shares are %+v, want none", all)
		}
	})
}

// TestOtherFloor: some processes have another floor than the others.
func TestOtherFloor(t *testing.T) {
	for _, floors := range [][2]int{{2, 33}, {33, 2}} {
		t.Run(fmt.Sprint(floors), func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				limit := headgate.Sliding(100, time.Second)
				w := newWorld(t, 1, limit, floors[0], 4*time.Second)
				w.regions[2].offered = 300
				w.run(10 * time.Second)
				w.floor = floors[1]
				for i, r := range w.regions[:2] {
					r.offered = 300
					for j := range r.processes {
						w.start(r, j)
						w.run(time.Second)
					}
					w.run(time.Duration(i) * 10 * time.Second)
				}
				w.start(w.regions[2], 0) // The other process goes on as before.
				w.regions[0].offered, w.regions[2].offered = 0, 0
				w.run(20 * time.Second)
				w.regions[2].offered = 300
				w.run(5 * time.Second)
				if over := w.over(&limit); over > 0 {
					t.Errorf("some second has %.0f units too many", over)
				}
			})
		})
	}
}

// TestOtherBurst: the burst of a limit is smaller in one region than in the others. A unit of it has
// more of the rate.
func TestOtherBurst(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.PerSecond(100)
		w := newWorld(t, 1, limit, 0, 4*time.Second)
		for _, p := range w.regions[0].processes {
			p.rule = headgate.MustRule("r", limit.WithBurst(10))
		}
		w.regions[0].offered = 300
		w.run(10 * time.Second)
		w.regions[0].cut(true) // It keeps what it has.
		w.regions[2].offered = 300
		w.run(10 * time.Second)
		if w.regions[2].admitted < 300 {
			t.Errorf("%d units were used where they are asked for, want most of the limit when those of the others are free", w.regions[2].admitted)
		}
		if over := w.over(&limit); over > 0 {
			t.Errorf("some time has %.3f units too many, of %d", over, len(w.all))
		}
	})
}

// TestLateSettlement: what was reserved with a large share is settled with a small one. What its bucket
// has refilled since then is not given back again.
func TestLateSettlement(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.PerSecond(100)
		w := newWorld(t, 1, limit, 2, 4*time.Second)
		w.reserve, w.cost, w.settle = 100, 2, time.Hour
		w.regions[0].offered = 100
		w.run(10 * time.Second)
		w.reserve = 0
		w.regions[0].offered, w.regions[2].offered = 0, 100
		w.run(10 * time.Second)
		for i := range w.open {
			w.open[i].settleAt = time.Time{}
		}
		w.open = w.open[len(w.open)-100:]
		w.reserve = 100
		w.regions[0].offered = 100
		w.run(2 * time.Second)
		if over := w.over(&limit); over > 0 {
			t.Errorf("some time has %.3f units too many, of %d", over, len(w.all))
		}
	})
}

// TestTwoBursts: one process of each region has a limit of another burst than the other one.
func TestTwoBursts(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.PerSecond(100)
		w := newWorld(t, 1, limit, 0, 4*time.Second)
		for _, r := range w.regions {
			r.processes[1].rule = headgate.MustRule("r", limit.WithBurst(10))
			r.offered = 300
		}
		w.run(60 * time.Second)
		if over := w.over(&limit); over > 0 {
			t.Errorf("some time has %.3f units too many, of %d", over, len(w.all))
		}
	})
}

// TestSlowBucket: a bucket that takes longer to fill than a lease is moved to and fro. Its counters
// drain as fast as its units were lent, and no faster.
func TestSlowBucket(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.Per(60, 10*time.Minute)
		w := newWorld(t, 1, limit, 2, 10*time.Second)
		for i := range race.Fewer(24) {
			for j, r := range w.regions {
				r.offered = 0.02
				if j == i%2 {
					r.offered = 1
				}
			}
			w.run(time.Minute + time.Duration(i)*10*time.Second)
		}
		if over := w.over(&limit); over > 0 {
			t.Errorf("some time has %.3f units too many, of %d", over, len(w.all))
		}
	})
}

// TestFollowsDemand: skewed demand uses the limit, also after it has moved.
func TestFollowsDemand(t *testing.T) {
	limits := []headgate.Limit{headgate.PerSecond(100), headgate.PerSecond(200).WithBurst(50), headgate.Sliding(100, time.Second), window(headgate.FixedWindow, 600, 6*time.Second), headgate.PerSecond(1_000_000_000_000), window(headgate.FixedWindow, headgate.MaxCount, 6*time.Second)}
	for _, limit := range limits[:race.Fewer(len(limits))] {
		for _, load := range []float64{1, 2} {
			t.Run(fmt.Sprint(&limit, " ", limit.Algorithm, " ", load), func(t *testing.T) {
				bubbletest.Test(t, func(t *testing.T) {
					w := newWorld(t, 1, limit, 2, 10*time.Second)
					w.cost = 1 + limit.Count/1000
					rate := load * float64(limit.Count) / (float64(limit.Micros()) / 1e6) / float64(w.cost)
					for i, part := range []float64{0.9, 0.09, 0.01} {
						w.regions[i].offered = rate * part
					}
					w.run(2 * w.lease)
					before := w.home.calls.Load()
					least := 0.93 // 0.96 to 1.00 as a rule; chance decides whose beat comes first
					if load == 1 {
						least = 0.91 // Not all of a demand that is the limit is where the units are.
					}
					if got := w.used(30 * time.Second); got < least {
						t.Errorf("%.3f of the limit was used, want %.2f at least", got, least)
					} else {
						t.Logf("%.3f of the limit was used, %.1f calls a second", got, float64(w.home.calls.Load()-before)/30)
					}
					w.regions[0].offered, w.regions[2].offered = w.regions[2].offered, w.regions[0].offered
					for s := 1; ; s++ {
						got := w.used(time.Second)
						if got >= 0.9 {
							t.Logf("%d s after the demand has moved, %.3f is used", s, got)
							break
						}
						if time.Duration(s)*time.Second >= 2*w.lease {
							t.Errorf("%v after the demand has moved, %.3f of the limit is used, want 0.9", 2*w.lease, got)
							break
						}
					}
				})
			})
		}
	}
}
