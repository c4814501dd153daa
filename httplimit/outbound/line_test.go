package outbound

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store"
)

// The tests of this file run in virtual time.

// counted is a store that counts how often it is asked.
type counted struct {
	remote
	asked atomic.Int64
}

func (s *counted) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s.asked.Add(1)
	return s.remote.Take(ctx, op, checks, dst)
}

// crowd is calls that wait at the same time, for a partner that takes 50 a second.
type crowd struct {
	t     *testing.T
	over  *Transport
	store *counted // nil for none
	paced bool     // by what the partner was found to admit, and not by a limit of our own

	mu    sync.Mutex // guards what follows
	order []int      // the numbers of the calls that were sent
	times []time.Time
	waits int
}

// numberOf is the key of a call's number in its context.
type numberOf struct{}

const crowdRate = 50

func newCrowd(t *testing.T, shared, paced bool) *crowd {
	c := &crowd{t: t, paced: paced}
	config := Config{MaxWait: LongestWait, Hooks: Hooks{Waited: func(*http.Request, time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waits++
	}}}
	var store headgate.Store
	if shared {
		c.store = &counted{remote: newRemote()}
		store = c.store
	}
	if !paced {
		own := headgate.MustRule("own", headgate.Limit{Count: crowdRate, Period: time.Second, Burst: 1})
		config.Limits = []Limit{{Rules: []*headgate.Rule{own}, Key: func(r *http.Request) string { return r.Header.Get("Account") }}}
	}
	var err error
	c.over, err = New(store, &simulated{answer: func(r *http.Request, _ *http.Response) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.order = append(c.order, r.Context().Value(numberOf{}).(int))
		c.times = append(c.times, time.Now())
		return nil
	}}, config)
	if err != nil {
		t.Fatal(err)
	}
	if paced {
		keepTo(c.over, crowdRate)
	}
	return c
}

// keepTo has a process keep to a pace.
func keepTo(tr *Transport, rate float64) {
	p := tr.partners.of("partner")
	p.pace = pace{Base: rate, Known: true, Up: true, Unit: 2 * time.Second, From: time.Now()}
	p.read = time.Now().Add(time.Hour) // Nobody else has another one.
}

// call makes a call, and returns its error.
func (c *crowd) call(ctx context.Context, n int, account string) error {
	r, err := http.NewRequestWithContext(context.WithValue(ctx, numberOf{}, n), http.MethodGet, "http://partner/", http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Account", account)
	res, err := c.over.RoundTrip(r)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// begin makes so many calls, and end waits for them and returns how many have failed.
func (c *crowd) begin(calls int, apart time.Duration) (end func() int) {
	var all sync.WaitGroup
	var failed atomic.Int64
	for i := range calls {
		all.Go(func() {
			if err := c.call(c.t.Context(), i, "a"); err != nil {
				failed.Add(1)
			}
		})
		time.Sleep(apart)
	}
	return func() int {
		all.Wait()
		return int(failed.Load())
	}
}

// kinds runs a test with what may have calls wait.
func kinds(t *testing.T, f func(t *testing.T, c *crowd)) {
	t.Parallel()
	for name, is := range map[string]struct{ shared, paced bool }{"a pace": {false, true}, "a pace over a store": {true, true}, "a limit of our own": {true, false}} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) { f(t, newCrowd(t, is.shared, is.paced)) })
		})
	}
}

// TestCallsGoInOrder: calls that wait go in the order in which they came, one by one, as fast as they
// may, and hardly any of them asks in vain.
func TestCallsGoInOrder(t *testing.T) {
	kinds(t, func(t *testing.T, c *crowd) {
		const calls = 1000
		began := time.Now()
		if failed := c.begin(calls, 100*time.Microsecond)(); failed > 0 {
			t.Errorf("%d of %d calls failed", failed, calls)
		}
		for i, n := range c.order {
			if n != i {
				t.Fatalf("call %d was sent as number %d", n, i)
			}
		}
		if took := time.Since(began).Seconds(); took > 1.02*calls/crowdRate {
			t.Errorf("%d calls at %d a second took %.1fs", calls, crowdRate, took)
		}
		for i := crowdRate + 1; i < calls; i++ {
			if d := c.times[i].Sub(c.times[i-crowdRate-1]); d < time.Second-late {
				t.Errorf("%d calls were sent within %v", crowdRate+2, d)
			}
		}
		if c.store != nil && c.store.asked.Load() > 4*calls || c.waits > 4*calls {
			t.Errorf("%d calls waited %d times, and asked the store %d times", calls, c.waits, c.store.asked.Load())
		}
	})
}

// TestCallsThatLeave: calls that give up while they wait hold up nobody, and are not sent.
func TestCallsThatLeave(t *testing.T) {
	kinds(t, func(t *testing.T, c *crowd) {
		const calls = 300
		began := time.Now()
		var sent, left atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 != 0 {
					time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
				}
				switch err := c.call(ctx, i, "a"); {
				case err == nil:
					sent.Add(1)
				case errors.Is(err, context.Canceled):
					left.Add(1)
				default:
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Microsecond)
		}
		all.Wait()
		took := time.Since(began)
		if sent.Load() < calls/3 || sent.Load()+left.Load() != calls {
			t.Errorf("of %d calls, %d were sent and %d gave up", calls, sent.Load(), left.Load())
		}
		// Some give up in the moment in which they would go.
		if most := time.Duration(sent.Load()+left.Load()/10+2) * time.Second / crowdRate; took > most {
			t.Errorf("%d calls were sent in %v", sent.Load(), took)
		}
		p := c.over.partners.of("partner")
		if len(p.bounds) > 0 || p.line.calls.Len() > 0 {
			t.Errorf("%d lines are left, and %d calls", len(p.bounds), p.line.calls.Len())
		}
	})
}

// TestCallsWithoutTime: a call that cannot have its turn in time fails at once, and one that can does not.
func TestCallsWithoutTime(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		bubbletest.Test(t, func(t *testing.T) {
			c := newCrowd(t, shared, true)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 10 * crowdRate {
				all.Go(func() { _ = c.call(ctx, i, "a") })
				time.Sleep(time.Microsecond)
			}
			for _, is := range []struct {
				patience time.Duration
				sent     bool
			}{{9900 * time.Millisecond, false}, {10200 * time.Millisecond, true}} {
				short, end := context.WithTimeout(ctx, is.patience)
				began := time.Now()
				all.Go(func() {
					defer end()
					err := c.call(short, -1, "a")
					denied, ok := errors.AsType[*headgate.DeniedError](err)
					switch {
					case is.sent && err != nil:
						t.Errorf("a call that can wait for %v: %v", is.patience, err)
					case !is.sent && (!ok || time.Since(began) > time.Millisecond || denied.Decision.RetryAfter < is.patience || denied.Decision.RetryAfter > 2*is.patience):
						t.Errorf("a call that can wait for %v fails after %v with %v", is.patience, time.Since(began), err)
					}
				})
				bubbletest.Wait()
			}
			time.Sleep(11 * time.Second)
			cancel()
			all.Wait()
		})
	}
}

// TestAccountsDoNotWait: calls that a limit of our own has wait do not hold up those with another key.
func TestAccountsDoNotWait(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		c := newCrowd(t, true, false)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { _ = c.call(ctx, i, "busy") })
		}
		time.Sleep(time.Second)
		for i := range 10 {
			began := time.Now()
			if err := c.call(ctx, i, "quiet"); err != nil {
				t.Error(err)
			}
			// It takes as long to the store, to the partner and back.
			if d := time.Since(began); d > 30*time.Millisecond {
				t.Errorf("a call with another key took %v", d)
			}
			time.Sleep(time.Second)
		}
		cancel()
		all.Wait()
		if p := c.over.partners.of("partner"); len(p.bounds) > 0 {
			t.Errorf("%d lines are left", len(p.bounds))
		}
	})
}

// TestPaceAndLimit: calls that both a pace and a limit of our own have wait get what both admit.
func TestPaceAndLimit(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		c := newCrowd(t, true, false)
		keepTo(c.over, 1.1*crowdRate)
		const calls = 500
		began := time.Now()
		if failed := c.begin(calls, 0)(); failed > 0 {
			t.Errorf("%d of %d calls failed", failed, calls)
		}
		if took := time.Since(began).Seconds(); took > 1.2*calls/crowdRate {
			t.Errorf("%d calls at %d a second took %.1fs", calls, crowdRate, took)
		}
	})
}

// TestProcessesTakeTurns: processes that keep to one pace get as much of it each.
func TestProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		c := newCrowd(t, true, true)
		const processes, calls = 5, 1000
		over := []*Transport{c.over}
		for range processes - 1 {
			tr, err := New(c.store, c.over.base, c.over.config)
			if err != nil {
				t.Fatal(err)
			}
			keepTo(tr, crowdRate)
			over = append(over, tr)
		}
		var all sync.WaitGroup
		for i := range calls {
			r, err := http.NewRequestWithContext(context.WithValue(t.Context(), numberOf{}, i), http.MethodGet, "http://partner/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				res, err := over[i%processes].RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
			})
			time.Sleep(100 * time.Microsecond)
		}
		all.Wait()
		var sent [processes]int
		for _, n := range c.order[:calls/2] {
			sent[n%processes]++
		}
		for i, n := range sent {
			if n < calls/2/processes/2 {
				t.Errorf("of the first %d calls, process %d has sent %d", calls/2, i, n)
			}
		}
		t.Logf("of the first %d calls, the processes have sent %d", calls/2, sent)
		if asked := c.store.asked.Load(); asked > (processes+1)*calls {
			t.Errorf("%d processes have asked %d times for %d calls", processes, asked, calls)
		}
	})
}

// failing is a store that cannot answer while it is down.
type failing struct {
	remote
	down     atomic.Bool
	readable bool // documents can be read all the same, as those of a replica, or of a full server
}

func (s *failing) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if s.down.Load() {
		return nil, headgate.ErrUnavailable
	}
	return s.remote.Take(ctx, op, checks, dst)
}

func (s *failing) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	if s.down.Load() && !s.readable {
		return store.Document{}, headgate.ErrUnavailable
	}
	return s.remote.ReadDocument(ctx, key)
}

func (s *failing) WriteDocument(ctx context.Context, was store.Document, value []byte, kept time.Duration) (bool, error) {
	if s.down.Load() {
		return false, headgate.ErrUnavailable
	}
	return s.remote.WriteDocument(ctx, was, value, kept)
}

// TestStoreEndsWhileCallsWait: calls that a limit of our own has wait are neither all sent nor all failed at once
// when the store is lost, and go on as before when it is back.
func TestStoreEndsWhileCallsWait(t *testing.T) {
	t.Parallel()
	const calls, away = 1000, 3 * time.Second
	for _, closed := range []bool{false, true} {
		bubbletest.Test(t, func(t *testing.T) {
			c := newCrowd(t, true, false)
			store := &failing{remote: c.store.remote}
			c.over.store, c.over.config.FailClosed = &reach{store: store, documents: store}, closed
			if closed {
				c.over.store = store
			}
			began := time.Now()
			end := c.begin(calls, 100*time.Microsecond)
			time.Sleep(2 * time.Second)
			store.down.Store(true)
			time.Sleep(away)
			store.down.Store(false)
			failed := end()
			most, longest := 0, 1.05*calls/crowdRate
			if closed { // Some find out that it is away, and when it is back.
				most = int(away/longestApart) + 10
				longest += (away + longestApart).Seconds()
			}
			if took := time.Since(began).Seconds(); took > longest {
				t.Errorf("closed: %v: %d calls at %d a second took %.1fs", closed, calls, crowdRate, took)
			}
			if failed > most || len(c.times)+failed != calls {
				t.Errorf("closed: %v: %d calls were sent, and %d failed", closed, len(c.times), failed)
			}
			for i := crowdRate * 6 / 5; i < len(c.times); i++ {
				if d := c.times[i].Sub(c.times[i-crowdRate*6/5]); d < time.Second {
					t.Fatalf("closed: %v: %d calls were sent within %v", closed, crowdRate*6/5+1, d)
				}
			}
		})
	}
}
