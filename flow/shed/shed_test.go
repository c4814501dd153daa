package shed

import (
	"context"
	"errors"
	"io/fs"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/internal/bubbletest"
)

// newGate returns a queue in front of that many permits.
func newGate(t testing.TB, limit int64, c Config) *Gate {
	t.Helper()
	inner, err := permits.New(permits.Config{Name: "inner", Limit: limit, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(inner, c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// asked is a request that waits in a goroutine.
type asked struct {
	mu     sync.Mutex
	permit flow.Permit
	err    error
	ended  bool
	took   time.Duration
}

func ask(ctx context.Context, g flow.Gate, r flow.Request) *asked {
	a := &asked{}
	began := time.Now()
	go func() {
		p, err := g.Acquire(ctx, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.permit, a.err, a.ended, a.took = p, err, true, time.Since(began)
	}()
	bubbletest.Wait()
	return a
}

// state is "waits", "holds", or the reason of a rejection.
func (a *asked) state(t *testing.T) string {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.ended:
		return "waits"
	case a.err == nil:
		return "holds"
	}
	rejection, ok := errors.AsType[*flow.Rejection](a.err)
	if !ok {
		t.Fatalf("the error is %v, want a rejection", a.err)
	}
	if rejection.Retry || rejection.RetryAfter <= 0 {
		t.Errorf("%+v: who is shed is told when to come, and not to retry", rejection)
	}
	return rejection.Reason.String()
}

func (a *asked) done(o flow.Outcome) {
	a.mu.Lock()
	p := a.permit
	a.mu.Unlock()
	p.Done(o)
	bubbletest.Wait()
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for problems, c := range map[int]Config{
		4: {Queue: -1, Interval: -1, Target: -2, Sample: -1},
		1: {Interval: time.Millisecond, Target: time.Second},
	} {
		_, err := New(flow.Chain(), c)
		if invalid, ok := errors.AsType[*headgate.InvalidError](err); !ok || len(invalid.Problems) != problems {
			t.Errorf("%+v: %v, want %d problems", c, err, problems)
		}
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := newGate(t, 1, Config{Name: "q", Queue: 3})
		first := ask(t.Context(), g, flow.Request{})
		low := ask(t.Context(), g, flow.Request{Class: flow.Sheddable})
		second := ask(t.Context(), g, flow.Request{})
		newest := ask(t.Context(), g, flow.Request{Class: flow.Sheddable})
		plus := ask(t.Context(), g, flow.Request{Class: flow.CriticalPlus})
		full := ask(t.Context(), g, flow.Request{Class: flow.Sheddable})
		for name, c := range map[string]struct {
			a    *asked
			want string
		}{
			"first": {first, "holds"}, "low": {low, "waits"}, "second": {second, "waits"},
			"newest": {newest, "displaced"}, "plus": {plus, "waits"}, "full": {full, "queue_full"},
		} {
			if got := c.a.state(t); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
		if _, err := g.TryAcquire(t.Context(), flow.Request{}); !errors.Is(err, flow.ErrShed) {
			t.Errorf("TryAcquire: %v", err)
		}
		if s := g.Stats(); s.Waiting != 3 || s.InUse != 1 {
			t.Errorf("stats: %+v", s)
		}
		first.done(flow.Success)
		if plus.state(t) != "holds" || second.state(t) != "waits" {
			t.Error("the most important class goes first")
		}
		plus.done(flow.Success)
		if second.state(t) != "holds" {
			t.Error("then the next")
		}
		time.Sleep(101 * time.Millisecond)
		bubbletest.Wait()
		if got := low.state(t); got != "waited" {
			t.Errorf("low: %s, want waited", got)
		}
		second.done(flow.Success)
		if s := g.Stats(); s.InUse != 0 || s.Waiting != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// In a queue that has not moved for an interval the newest goes first, and the others
// have the target to wait.
func TestStandingQueue(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := newGate(t, 1, Config{Interval: 100 * time.Millisecond, Target: 5 * time.Millisecond})
		r := flow.Request{Class: flow.Sheddable}
		holder := ask(t.Context(), g, flow.Request{})
		oldest := ask(t.Context(), g, r)
		time.Sleep(50 * time.Millisecond)
		older := ask(t.Context(), g, r)
		time.Sleep(48 * time.Millisecond)
		young := ask(t.Context(), g, r)
		time.Sleep(time.Millisecond)
		// It moves, but whoever goes has waited long: it stands a millisecond later.
		holder.done(flow.Success)
		if oldest.state(t) != "holds" {
			t.Fatal("a queue that moves is served in order")
		}
		time.Sleep(2 * time.Millisecond)
		old := ask(t.Context(), g, r)
		if older.state(t) != "waited" || young.state(t) != "waits" {
			t.Errorf("in a queue that stands: older %s, young %s", older.state(t), young.state(t))
		}
		time.Sleep(time.Millisecond)
		newest := ask(t.Context(), g, r)
		oldest.done(flow.Success)
		if newest.state(t) != "holds" || old.state(t) != "waits" {
			t.Errorf("newest %s, old %s", newest.state(t), old.state(t))
		}
		newest.done(flow.Success)
		if old.state(t) != "holds" {
			t.Errorf("old %s", old.state(t))
		}
		time.Sleep(5 * time.Millisecond)
		if p, err := g.TryAcquire(t.Context(), flow.Request{}); err == nil {
			t.Error("there were two permits")
			p.Done(flow.Ignore)
		}
		bubbletest.Wait()
		if got := young.state(t); got != "waited" {
			t.Errorf("young %s", got)
		}
		// The queue is empty, and moves again.
		first := ask(t.Context(), g, r)
		second := ask(t.Context(), g, r)
		old.done(flow.Success)
		if first.state(t) != "holds" || second.state(t) != "waits" {
			t.Errorf("first %s, second %s", first.state(t), second.state(t))
		}
		first.done(flow.Success)
		second.done(flow.Success)
	})
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := newGate(t, 1, Config{})
		// Work takes 50 ms.
		for range 5 {
			p, err := g.Acquire(t.Context(), flow.Request{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			p.Done(flow.Success)
		}
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		// With a permit free, a short deadline is the caller's affair.
		holder := ask(within(10*time.Millisecond), g, flow.Request{})
		if holder.state(t) != "holds" {
			t.Errorf("with a permit free: %s", holder.state(t))
		}
		if got := ask(within(40*time.Millisecond), g, flow.Request{}).state(t); got != "late" {
			t.Errorf("a deadline before the work can end: %s", got)
		}
		soon := ask(within(60*time.Millisecond), g, flow.Request{})
		later := ask(within(500*time.Millisecond), g, flow.Request{})
		if soon.state(t) != "waits" || later.state(t) != "waits" {
			t.Errorf("soon %s, later %s", soon.state(t), later.state(t))
		}
		time.Sleep(20 * time.Millisecond)
		holder.done(flow.Success)
		if soon.state(t) != "late" || later.state(t) != "holds" {
			t.Errorf("when it is their turn: soon %s, later %s", soon.state(t), later.state(t))
		}
		gone, cancel := context.WithCancel(t.Context())
		waits := ask(gone, g, flow.Request{})
		cancel()
		bubbletest.Wait()
		if !errors.Is(waits.err, context.Canceled) {
			t.Errorf("a caller that is gone: %v", waits.err)
		}
		if over := ask(gone, g, flow.Request{}); !errors.Is(over.err, context.Canceled) {
			t.Errorf("a caller that was gone before: %v", over.err)
		}
		later.done(flow.Success)
		if s := g.Stats(); s.InUse != 0 || s.Waiting != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestNestedAndErrors(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := newGate(t, 2, Config{})
		outer, err := g.Acquire(t.Context(), flow.Request{Cost: 2})
		if err != nil {
			t.Fatal(err)
		}
		for name, gate := range map[string]flow.Gate{"itself": g, "the gate behind": g.inner} {
			if p, err := gate.Acquire(outer.Context(t.Context()), flow.Request{}); err != nil || p.Held() {
				t.Errorf("inside %s: %v, held %t", name, err, p.Held())
			}
		}
		// What the gate behind refuses for another reason than being busy does not wait.
		_, err = g.Acquire(t.Context(), flow.Request{Cost: 3})
		if rejection, _ := errors.AsType[*flow.Rejection](err); rejection == nil || rejection.Reason != flow.ReasonTooLarge {
			t.Errorf("what can never fit: %v", err)
		}
		if _, err := g.Acquire(t.Context(), flow.Request{Class: 5}); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("an invalid request: %v", err)
		}
		outer.Done(flow.Success)
	})
}

// A timeout of work that had waited in the queue is not held against the gate behind, if
// the wait left it little time.
func TestOverloadAfterAWait(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		inner, err := permits.New(permits.Config{Limit: 1, Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		g, err := New(inner, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			held time.Duration
			want flow.Outcome
		}{{80 * time.Millisecond, flow.Ignore}, {time.Second, flow.Overload}} {
			for range 100 { // so that work is known to take 50 ms, always
				p, err := g.Acquire(t.Context(), flow.Request{})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
				p.Done(flow.Success)
			}
			first := ask(t.Context(), g, flow.Request{})
			second := ask(t.Context(), g, flow.Request{})
			before := inner.Stats().Done
			first.done(flow.Overload) // it had not waited
			if after := inner.Stats().Done; after[flow.Overload] != before[flow.Overload]+1 {
				t.Errorf("without a wait: %v, then %v", before, after)
			}
			before = inner.Stats().Done
			time.Sleep(c.held)
			second.done(flow.Overload)
			if after := inner.Stats().Done; after[c.want] != before[c.want]+1 {
				t.Errorf("%v after a wait: %v, then %v", c.held, before, after)
			}
			if s := g.Stats(); s.Done[flow.Overload] == 0 {
				t.Errorf("the gate itself counts what it was told: %+v", s)
			}
		}
	})
}

// level is a signal that says what it is told to.
type level struct {
	pressure float64
	err      error
	reads    int
}

func (l *level) Pressure() (float64, error) {
	l.reads++
	return l.pressure, l.err
}

func TestPressure(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		signal, other := &level{}, &level{pressure: 0.01}
		var failed []error
		g := newGate(t, 1_000_000, Config{
			Signals: []Signal{signal, other}, SignalFailed: func(err error) { failed = append(failed, err) },
		})
		for _, c := range []struct {
			pressure float64
			shed     [flow.Classes]float64 // by rank
		}{
			{0.01, [...]float64{0, 0, 0, 0.03}},
			{1.0 / 6, [...]float64{0, 0, 0, 0.5}},
			{0.5, [...]float64{0, 0, 0.5, 1}},
			{0.9, [...]float64{0, 0.7, 1, 1}},
			{7, [...]float64{0, 1, 1, 1}},
		} {
			signal.pressure = c.pressure
			time.Sleep(100 * time.Millisecond)
			for rank, want := range c.shed {
				const n = 2000
				refused := 0.0
				for range n {
					p, err := g.Acquire(t.Context(), flow.Request{Class: flow.ClassOfRank(rank)})
					if err != nil {
						refused++
					}
					p.Done(flow.Success)
				}
				if share := refused / n; share < want-0.05 || share > want+0.05 {
					t.Errorf("pressure %v: %.3f of class %v is shed, want %.3f", c.pressure, share, flow.ClassOfRank(rank), want)
				}
			}
		}
		reads := signal.reads
		signal.err = errors.New("no such file")
		time.Sleep(100 * time.Millisecond)
		if _, err := g.Acquire(t.Context(), flow.Request{}); err != nil || g.Pressure() != 0.01 || len(failed) != 1 || signal.reads != reads+1 {
			t.Errorf("a signal that fails: %v, pressure %v, %v", err, g.Pressure(), failed)
		}
	})
}

func TestSignalsFromFiles(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{}
	write := func(name, text string) { files[name] = &fstest.MapFile{Data: []byte(text)} }
	if _, err := NewThrottling(files, "cpu.stat"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := NewMemory(files, "memory.pressure"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write("cpu.stat", "usage_usec 5\nnr_periods 100\nnr_throttled 90\nthrottled_usec 123\n")
	cpu, err := NewThrottling(files, "cpu.stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		periods, throttled int
		want               float64
	}{{200, 90, 0}, {300, 95, 0}, {400, 145, 1}, {500, 145 + 27, (0.27 - 0.05) / 0.45}, {500, 172, 0}, {10, 2, 0}, {20, 12, 1}} {
		write("cpu.stat", "nr_periods "+strconv.Itoa(c.periods)+"\nnr_throttled "+strconv.Itoa(c.throttled)+"\n")
		if got, err := cpu.Pressure(); err != nil || got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	write("memory.pressure", "some avg10=10.50 avg60=0 avg300=0 total=5\nfull avg10=50.00 avg60=0 avg300=0 total=5\n")
	memory, err := NewMemory(files, "memory.pressure")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := memory.Pressure(); err != nil || got < 0.4999 || got > 0.5001 {
		t.Errorf("memory: %v, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "one line": "nr_periods 5\n", "no number": "nr_periods 5\nnr_throttled x\n", "negative": "nr_periods -5\nnr_throttled 1\n",
		"twice": "nr_periods 5\nnr_periods 5\nnr_throttled 1\n",
	} {
		if s, err := parseCPUStat([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "no some": "full avg10=0.00\n", "no avg10": "some avg60=0.00\n", "too much": "some avg10=100.01\n",
		"negative": "some avg10=-1\n", "not a number": "some avg10=NaN\n",
	} {
		if s, err := parseStall([]byte(text)); err == nil {
			t.Errorf("%s: %v", name, s)
		}
	}
}

func FuzzParseCPUStat(f *testing.F) {
	f.Add([]byte("usage_usec 5\nnr_periods 100\nnr_throttled 90\nthrottled_usec 123\n"))
	f.Add([]byte("nr_periods 18446744073709551616\nnr_throttled\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseCPUStat(text)
		if err != nil && s != (cpuStat{}) {
			t.Errorf("%+v beside %v", s, err)
		}
		if err == nil && !strings.Contains(string(text), "nr_throttled") {
			t.Errorf("%+v out of %q", s, text)
		}
	})
}

func FuzzParseStall(f *testing.F) {
	f.Add([]byte("some avg10=10.50 avg60=0 avg300=0 total=5\nfull avg10=50.00\n"))
	f.Add([]byte("some avg10=1e3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if share, err := parseStall(text); !(share >= 0 && share <= 1) || err != nil && share != 0 {
			t.Errorf("%v, %v out of %q", share, err, text)
		}
	})
}

func TestScheduler(t *testing.T) {
	t.Parallel()
	s := NewScheduler()
	if p, err := s.Pressure(); err != nil || p < 0 || p > 1 {
		t.Errorf("the runtime's own: %v, %v", p, err)
	}
	s = &Scheduler{}
	h := &metrics.Float64Histogram{Buckets: []float64{0, 0.001, 0.01, 0.1}, Counts: []uint64{1000, 0, 0}}
	for _, c := range []struct {
		counts [3]uint64
		want   float64
	}{
		{[3]uint64{1000, 0, 0}, 0},
		{[3]uint64{2000, 9, 0}, 0},     // less than one in a hundred
		{[3]uint64{2900, 9, 30}, 0.01}, // more of the longest
		{[3]uint64{3000, 109, 30}, 0.001},
		{[3]uint64{3000, 109, 30}, 0}, // nothing since
	} {
		h.Counts = c.counts[:]
		if got := s.quantile(h, 0.99); got != c.want {
			t.Errorf("%v: %v, want %v", c.counts, got, c.want)
		}
	}
}

// slow is a signal that takes longer to read than the time between two readings.
type slow struct{ reading, reads, together int }

func (s *slow) Pressure() (float64, error) {
	s.reads++
	s.reading++
	s.together = max(s.together, s.reading)
	time.Sleep(time.Second)
	s.reading--
	return 0, nil
}

func TestSlowSignal(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		signal := &slow{}
		g := newGate(t, 100, Config{Signals: []Signal{signal}, Sample: 100 * time.Millisecond})
		var all sync.WaitGroup
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			all.Go(func() {
				if p, err := g.Acquire(t.Context(), flow.Request{}); err == nil {
					p.Done(flow.Success)
				}
			})
		}
		all.Wait()
		if signal.together != 1 || signal.reads < 4 {
			t.Errorf("the signal was read %d times, by up to %d goroutines at once", signal.reads, signal.together)
		}
	})
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	g := newGate(t, 3, Config{Queue: 10, Interval: 2 * time.Millisecond, Target: time.Millisecond, Signals: []Signal{NewScheduler()}})
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%3)*time.Millisecond)
				p, err := g.Acquire(ctx, flow.Request{Class: flow.ClassOfRank(i % flow.Classes), Tenant: strconv.Itoa(worker)})
				if err == nil {
					p.Done(flow.Outcome(i % flow.Outcomes))
					p.Done(flow.Success)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if s := g.Stats(); s.InUse != 0 || s.Waiting != 0 || s.Admitted == 0 {
		t.Errorf("at the end %+v", s)
	}
}

func BenchmarkAcquire(b *testing.B) {
	g := newGate(b, 10, Config{})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Acquire(ctx, flow.Request{})
		p.Done(flow.Success)
	}
}
