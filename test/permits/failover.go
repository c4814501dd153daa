package permits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/test/stores"
)

// Failover is what holders saw of a failover.
type Failover struct {
	// Granted is how many leases there were.
	Granted int
	// Forgotten is how many leases the store had lost when they were renewed, and Ended how
	// many could not be renewed in time.
	Forgotten, Ended int
	// Over is how many units of one key were believed to be held at a time beyond the limit.
	Over int64
	// Gap is the longest time without a new lease.
	Gap time.Duration
}

// failoverLoad is holders that go on whatever happens to the store.
type failoverLoad struct {
	t  testing.TB
	mu sync.Mutex // guards what follows

	highest map[string]int64 // epoch of each key and slot
	held    map[string]int64 // units of each key
	last    time.Time        // when a lease was granted
	result  Failover
}

const (
	failoverLimit = 2
	failoverTTL   = 3 * time.Second
	failoverKeys  = 12
)

// RunFailover has holders work while fault has another server take over. Fences are held
// to what is promised: the epochs of a slot grow, before, during and after.
func RunFailover(t testing.TB, permits store.Permits, fault func(granted func(more int))) Failover {
	t.Helper()
	l := &failoverLoad{t: t, highest: map[string]int64{}, held: map[string]int64{}, last: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var gates []*shared.Gate
	for range 2 {
		g, err := shared.New(permits, shared.Config{
			Name: "failover", Limit: failoverLimit, TTL: failoverTTL, Queue: 20, MaxWait: time.Second,
			Lost: func(e *shared.LostError) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if errors.Is(e, shared.ErrEnded) {
					l.result.Ended++
				} else {
					l.result.Forgotten++
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		gates = append(gates, g)
	}
	var all sync.WaitGroup
	for i := range 3 * failoverKeys {
		all.Go(func() { l.work(ctx, gates[i%2], fmt.Sprint(i%failoverKeys)) })
	}
	granted := func(more int) {
		t.Helper()
		l.mu.Lock()
		want := l.result.Granted + more
		l.mu.Unlock()
		stores.Until(t, "leases are granted", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.result.Granted >= want
		})
	}
	granted(60)
	fault(granted)
	granted(100)
	cancel()
	all.Wait()
	for _, g := range gates {
		end, done := context.WithTimeout(context.Background(), 30*time.Second)
		if err := g.Close(end); err != nil {
			t.Error(err)
		}
		done()
	}
	return l.result
}

func (l *failoverLoad) work(ctx context.Context, gate *shared.Gate, key string) {
	for ctx.Err() == nil {
		before := l.before(key)
		permit, err := gate.Acquire(ctx, flow.Request{Key: key})
		if err != nil {
			_, rejected := errors.AsType[*flow.Rejection](err)
			if !rejected && !errors.Is(err, headgate.ErrUnavailable) && !errors.Is(err, shared.ErrEnded) && ctx.Err() == nil {
				l.t.Error(err)
				return
			}
			time.Sleep(100 * time.Millisecond) // Callers that ask all the time keep the next server from starting.
			continue
		}
		held := permit.Context(ctx)
		if fence, err := shared.FenceOf(held); err == nil {
			l.begin(key, fence, before)
			lasts := rand.N(100 * time.Millisecond)
			if rand.N(5) == 0 {
				lasts = 2 * failoverTTL // so long that it is held when the other server has taken over
			}
			select {
			case <-held.Done():
			case <-time.After(lasts):
			}
			l.end(key)
		}
		permit.Done(flow.Success)
	}
}

// before returns the highest epoch of each slot that somebody has had by now.
func (l *failoverLoad) before(key string) (epochs [failoverLimit]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot := range epochs {
		epochs[slot] = l.highest[fmt.Sprint(key, " ", slot)]
	}
	return epochs
}

func (l *failoverLoad) begin(key string, f store.Fence, before [failoverLimit]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := f.Slots[0]
	at := fmt.Sprint(key, " ", slot)
	if f.Epoch <= before[slot] || f.Epoch == l.highest[at] {
		l.t.Errorf("slot %d of %s: the epoch is %d after %d", slot, key, f.Epoch, max(before[slot], l.highest[at]))
	}
	l.highest[at] = max(l.highest[at], f.Epoch)
	l.held[key]++
	l.result.Over = max(l.result.Over, l.held[key]-failoverLimit)
	l.result.Granted++
	l.result.Gap = max(l.result.Gap, time.Since(l.last))
	l.last = time.Now()
}

func (l *failoverLoad) end(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[key]--
}
