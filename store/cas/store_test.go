package cas_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/cas"
)

var everything = []headgate.Limit{
	headgate.PerHour(50),
	{Algorithm: headgate.LeakyBucket, Count: 60, Period: time.Hour},
	{Algorithm: headgate.FixedWindow, Count: 70, Period: time.Hour, Align: headgate.AlignFirst},
	headgate.Sliding(40, time.Hour),
	{Algorithm: headgate.SlidingCounter, Count: 80, Period: time.Hour},
}

func newStore(t testing.TB, f *fake, options ...cas.Option) *cas.Store {
	t.Helper()
	s, err := cas.New(f, append([]cas.Option{cas.Timeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestStoresOfOneBackend: several stores overtake one another all the time, and admit
// the limit.
func TestStoresOfOneBackend(t *testing.T) {
	f := newFake(manyKeys)
	rule := headgate.MustRule("r", everything...)
	var admitted, failed atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		s := newStore(t, f)
		for range 8 {
			all.Go(func() {
				for range 6 {
					got, err := s.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: "k"}}, nil)
					if err != nil {
						failed.Add(1)
					} else if headgate.NewVerdict(got).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	if admitted.Load() != 40 || failed.Load() != 0 {
		t.Errorf("%d were admitted and %d failed, want 40 and none", admitted.Load(), failed.Load())
	}
}

// TestTurns: calls that wait for a hot counter are decided together.
func TestTurns(t *testing.T) {
	f := newFake(manyKeys)
	open := make(chan struct{})
	var once sync.Once
	f.before = func([]string) { once.Do(func() { <-open }) }
	s := newStore(t, f)
	limiter := headgate.New(s, headgate.MustRule("r", headgate.PerHour(1000)))
	const callers = 33
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if _, err := limiter.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	for s.Waiting() < callers {
		time.Sleep(time.Millisecond)
	}
	close(open)
	all.Wait()
	// The first may leave alone, or with all the others.
	if n := f.attempts(); n > 2 {
		t.Errorf("%d attempts for %d calls, of which all but one waited; want 2 at most", n, callers)
	}
	if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 1000-callers {
		t.Errorf("%d remain, %v; want %d", d.Remaining, err, 1000-callers)
	}
}

// TestGiveUp: who gives up before his turn is not charged, and is told so; the call
// whose turn it is is told that nobody knows.
func TestGiveUp(t *testing.T) {
	f := newFake(manyKeys)
	open, inside := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.before = func([]string) { once.Do(func() { close(inside); <-open }) }
	s := newStore(t, f)
	limiter := headgate.New(s, headgate.MustRule("r", headgate.PerHour(9)))
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := limiter.Allow(ctx, "k"); first <- err }()
	<-inside
	go func() { _, err := limiter.Allow(ctx, "k"); second <- err }()
	for s.Waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	const nothing = "nothing was charged"
	if err := <-first; !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), nothing) {
		t.Errorf("the first was told %v", err)
	}
	if err := <-second; !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), nothing) {
		t.Errorf("the second was told %v", err)
	}
	close(open)
	if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 8 {
		t.Errorf("%d remain, %v; want 8", d.Remaining, err)
	}
}

// TestGiveUpEarly: who gives up while the backend has not answered yet, or whose time is
// over by then, is told that nothing was charged, and nothing is; others of the same turn
// are charged.
func TestGiveUpEarly(t *testing.T) {
	f := newFake(manyKeys)
	open, inside := make(chan struct{}), make(chan struct{})
	f.beginning = func() {
		select {
		case inside <- struct{}{}:
			<-open
		case <-open:
		}
	}
	s := newStore(t, f)
	limiter := headgate.New(s, headgate.MustRule("r", headgate.PerHour(9)))
	cancelled, cancel := context.WithCancel(t.Context())
	late, cancelLate := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancelLate()
	told := make(chan error, 2)
	go func() { _, err := limiter.Allow(cancelled, "k"); told <- err }()
	<-inside
	cancel()
	stays := make(chan error, 1)
	go func() { _, err := limiter.Allow(t.Context(), "k"); stays <- err }()
	for s.Waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	<-late.Done()
	go func() { _, err := limiter.Allow(late, "k"); told <- err }()
	for range 2 {
		if err := <-told; !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was charged") {
			t.Errorf("who gave up was told %v", err)
		}
	}
	close(open)
	if err := <-stays; err != nil {
		t.Error(err)
	}
	if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 8 {
		t.Errorf("%d remain, %v; want 8", d.Remaining, err)
	}
}

// TestForgetsRegardless: what has expired is forgotten although a reservation cannot be
// given back, which is told.
func TestForgetsRegardless(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		f := newFake(manyKeys)
		var micros atomic.Int64
		micros.Store(1e15)
		l, err := cas.NewLedger(f, cas.Clock(micros.Load), cas.Timeout(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		rule := headgate.MustRule("r", headgate.PerHour(9))
		if _, err := headgate.New(l, rule).Allow(t.Context(), "expires"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.Reserve(t.Context(), headgate.Terms{For: time.Second}, []headgate.Check{{Rule: rule, Key: "k", GiveBack: true}}, nil); err != nil {
			t.Fatal(err)
		}
		micros.Add((3 * time.Hour).Microseconds())
		f.before = func(keys []string) { // overtakes every attempt
			f.mu.Lock()
			defer f.mu.Unlock()
			f.version++
			v := f.values[keys[0]]
			v.version = f.version
			f.values[keys[0]] = v
		}
		if err := l.Sweep(t.Context()); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range f.values {
			if strings.HasSuffix(name, "expires") {
				t.Errorf("%q was not forgotten", name)
			}
		}
	})
}

// TestSetBackWhileSweeping: a sweep has read the clock, the clock is set back by more than the window,
// and a log follows it. Its units are in use and must not be forgotten.
func TestSetBackWhileSweeping(t *testing.T) {
	t.Parallel()
	f := newFake(manyKeys)
	l := newLedger(t, f)
	check := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Sliding(1, time.Hour)), Key: "k"}}
	allowed := func() bool {
		out, err := l.Take(t.Context(), headgate.OpTake, check, nil)
		if err != nil {
			t.Error(err)
		}
		return err == nil && out[0].Allowed
	}
	if !allowed() {
		t.Fatal("the first request is denied")
	}
	f.sought = func() {
		f.ahead.Store(-(24 * time.Hour).Microseconds())
		if allowed() {
			t.Error("a clock that is set back frees a unit")
		}
	}
	if err := l.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if allowed() {
		t.Error("the sweep has forgotten a unit in use")
	}
}

// TestOvertaken: a counter that others change again and again is an error by the
// deadline, and was not charged.
func TestOvertaken(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		f := newFake(manyKeys)
		f.before = func(keys []string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.version++
			f.values[keys[0]] = versioned{version: f.version}
		}
		s := newStore(t, f, cas.Timeout(50*time.Millisecond))
		_, err := headgate.New(s, headgate.MustRule("r", headgate.PerHour(9))).Allow(t.Context(), "k")
		if !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if f.attempts() < 2 {
			t.Error("it was not tried again")
		}
	})
}

// TestRefusals: what is refused at once.
func TestRefusals(t *testing.T) {
	f := newFake(1)
	s := newStore(t, f)
	rule := headgate.MustRule("r", headgate.PerHour(9))
	checks := []headgate.Check{{Rule: rule, Key: "a"}, {Rule: rule, Key: "b"}}
	if _, err := s.Take(t.Context(), headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "2 checks") {
		t.Errorf("two checks and one key: %v", err)
	}
	f.broken = errors.New("on fire")
	if _, err := s.Take(t.Context(), headgate.OpTake, checks[:1], nil); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, f.broken) {
		t.Errorf("a broken backend: %v", err)
	}
	s.Close()
	if _, err := s.Take(t.Context(), headgate.OpTake, checks[:1], nil); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a closed store: %v", err)
	}
	if _, err := cas.NewLedger(newFake(64)); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a ledger of 64 keys: %v", err)
	}
	_, err := cas.New(f, cas.Timeout(0), cas.Lanes(0), cas.MaxPending(0), cas.Prefix(strings.Repeat("p", 65)))
	for _, want := range []string{"timeout", "lanes", "pending", "prefix"} {
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("bad options: %v; want something about the %s", err, want)
		}
	}
}

// TestMaxPending: calls beyond the bound are refused at once.
func TestMaxPending(t *testing.T) {
	f := newFake(manyKeys)
	open, inside := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.before = func([]string) { once.Do(func() { close(inside); <-open }) }
	limiter := headgate.New(newStore(t, f, cas.MaxPending(1)), headgate.MustRule("r", headgate.PerHour(9)))
	done := make(chan error, 1)
	go func() { _, err := limiter.Allow(t.Context(), "k"); done <- err }()
	<-inside
	if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFullValue: a log that has no room merges entries. It is stricter then, never
// laxer, and its value stays within the bound.
func TestFullValue(t *testing.T) {
	f := newFake(1)
	f.bytes = 1200
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	s := newStore(t, f, cas.Clock(now.Load))
	const count = 1000
	limiter := headgate.New(s, headgate.MustRule("r", headgate.Sliding(count, time.Hour)))
	for i := range count {
		now.Add(1000)
		if d, err := limiter.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatalf("request %d: %v, %v", i, d.Allowed, err)
		}
	}
	d, err := limiter.Allow(t.Context(), "k")
	if err != nil || d.Allowed {
		t.Fatalf("one too many: %v, %v", d.Allowed, err)
	}
	now.Add(d.RetryAfter.Microseconds())
	if d, err := limiter.Allow(t.Context(), "k"); err != nil || !d.Allowed {
		t.Errorf("after %v: %v, %v", d.RetryAfter, d.Allowed, err)
	}
}

// TestHostileBytes: no value makes the store panic, and none that cannot be read is
// taken for a fresh counter.
func TestHostileBytes(t *testing.T) {
	f := newFake(manyKeys)
	l := newLedger(t, f, cas.Clock(func() int64 { return 1_800_000_000_000_000 }))
	rule := headgate.MustRule("r", everything...)
	checks := []headgate.Check{{Rule: rule, Key: "k", GiveBack: true}}
	reserved, _, err := l.Reserve(t.Context(), headgate.Terms{ID: "id"}, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.set([]byte{})
	if _, err := l.Take(t.Context(), headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a counter without a byte: %v", err)
	}
	if _, err := l.Recall(t.Context(), "id"); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a note without a byte: %v", err)
	}
	f.set([]byte{9, 9, 9})
	if _, err := l.Take(t.Context(), headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("a counter of another version: %v", err)
	}
	if _, err := l.Settle(t.Context(), reserved, []int64{0}, nil); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("a note of another version: %v", err)
	}
	if _, err := l.Take(t.Context(), headgate.OpReset, checks, nil); err != nil {
		t.Error(err)
	}
	if got, err := l.Take(t.Context(), headgate.OpTake, checks, nil); err != nil || !headgate.NewVerdict(got).Allowed {
		t.Errorf("after a reset: %v", err)
	}
}

// FuzzValues has counters and notes hold any bytes, and does with them all that there
// is to do.
func FuzzValues(f *testing.F) {
	backend := newFake(manyKeys)
	now := int64(1_800_000_000_000_000)
	clock := func() int64 { return now }
	rule := headgate.MustRule("r", append(everything, headgate.Blocking(3, time.Minute, time.Minute, time.Hour))...)
	checks := []headgate.Check{{Rule: rule, Key: "k", GiveBack: true}}
	l, err := cas.NewLedger(backend, cas.Timeout(30*time.Second), cas.Clock(clock))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(l.Close)
	ctx := context.Background()
	reserved, _, err := l.Reserve(ctx, headgate.Terms{ID: "id"}, checks, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range backend.values {
		f.Add(v.value, int64(0))
		f.Add(v.value[:len(v.value)/2], int64(time.Hour/time.Microsecond))
	}
	if _, err := l.Settle(ctx, reserved, []int64{3}, nil); err != nil {
		f.Fatal(err)
	}
	for _, v := range backend.values {
		f.Add(v.value, int64(-5))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		b := make([]byte, 2+rng.IntN(60))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0], b[1] = 1, b[1]%4
		f.Add(b, rng.Int64N(1e9))
	}
	f.Fuzz(func(t *testing.T, value []byte, later int64) {
		now = 1_800_000_000_000_000 + later%(1<<48)
		try := func(what string, do func() error) {
			backend.mu.Lock()
			for _, key := range []string{"hg:r k", "hg: id"} {
				backend.version++
				backend.values[key] = versioned{value: value, version: backend.version, due: 1}
			}
			backend.mu.Unlock()
			err := do()
			for _, allowed := range []error{headgate.ErrUnavailable, headgate.ErrConflict, headgate.ErrNoReservation} {
				if err == nil || errors.Is(err, allowed) {
					return
				}
			}
			t.Errorf("%s: %v", what, err)
		}
		for op := headgate.OpTake; op <= headgate.OpCharge; op++ {
			try(op.String(), func() error { _, err := l.Take(ctx, op, checks, nil); return err })
		}
		try("reserve", func() error {
			_, _, err := l.Reserve(ctx, headgate.Terms{ID: "id"}, checks, nil)
			return err
		})
		try("recall", func() error { _, err := l.Recall(ctx, "id"); return err })
		try("settle", func() error { _, err := l.Settle(ctx, reserved, []int64{2}, nil); return err })
		try("sweep", func() error { return l.Sweep(ctx) })
	})
}

func ExampleNew() {
	store, err := cas.New(newFake(1), cas.Timeout(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter := headgate.New(store, headgate.MustRule("login", headgate.PerMinute(2)))
	for range 3 {
		d, err := limiter.Allow(context.Background(), "user42")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
