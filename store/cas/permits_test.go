package cas_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/cas"
	"github.com/headgate/headgate/store/storetest"
)

func TestPermits(t *testing.T) {
	storetest.RunPermits(t, 100, func(t testing.TB, clock func() int64) store.Permits {
		return newLedger(t, newFake(manyKeys), cas.Clock(clock))
	})
}

// TestPermitsAreForgotten: what is over is removed with its last release, or expires.
func TestPermitsAreForgotten(t *testing.T) {
	f := newFake(manyKeys)
	var now atomic.Int64
	now.Store(1e15)
	l := newLedger(t, f, cas.Clock(now.Load))
	ctx := t.Context()
	ask := func(holder string) store.PermitAnswer {
		a, err := l.Acquire(ctx, store.PermitRequest{Key: "k", Holder: holder, Limit: 1, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := ask("a")
	now.Add(time.Minute.Microseconds() - 1)
	for _, v := range f.values {
		if v.expires != now.Load()+1 {
			t.Errorf("it expires at %d, and the lease ends at %d", v.expires, now.Load()+1)
		}
	}
	if ok, err := l.Release(ctx, "k", "a", first.Lease.Epoch); !ok || err != nil {
		t.Error(ok, err)
	}
	if len(f.values) != 0 {
		t.Errorf("left behind: %v", f.values)
	}
}

// FuzzPermits: a value that somebody else has written is an error, or permits like any
// others.
func FuzzPermits(f *testing.F) {
	backend := newFake(manyKeys)
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	l, err := cas.NewLedger(backend, cas.Timeout(30*time.Second), cas.Clock(now.Load))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(l.Close)
	ctx := context.Background()
	r := store.PermitRequest{Key: "k", Holder: "a", Cost: 2, Limit: 3, TTL: time.Second, Queue: 5, Wait: time.Second}
	add := func() {
		for _, v := range backend.values {
			f.Add(v.value)
			f.Add(v.value[:len(v.value)/2])
		}
	}
	for _, holder := range []string{"a", "b", "c"} {
		r.Holder = holder
		if _, err := l.Acquire(ctx, r); err != nil {
			f.Fatal(err)
		}
		add()
	}
	if _, err := l.Revoke(ctx, "k", "a"); err != nil {
		f.Fatal(err)
	}
	add()
	rng := rand.New(rand.NewPCG(1, 3))
	for range 40 {
		b := make([]byte, 2+rng.IntN(60))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] = 1
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		try := func(what string, do func() error) {
			backend.mu.Lock()
			backend.version++
			backend.values["hg:\x00permit k"] = versioned{value: value, version: backend.version}
			backend.mu.Unlock()
			err := do()
			for _, allowed := range []error{headgate.ErrUnavailable, store.ErrNotHeld, store.ErrOtherCost} {
				if err == nil || errors.Is(err, allowed) {
					return
				}
			}
			t.Errorf("%s: %v", what, err)
		}
		try("acquire", func() error {
			a, err := l.Acquire(ctx, r)
			if err == nil && a.Granted() && a.Lease.Cost() != 2 {
				t.Errorf("granted: %+v", a)
			}
			return err
		})
		try("renew", func() error { _, err := l.Renew(ctx, "k", "a", now.Load(), time.Second); return err })
		try("release", func() error { _, err := l.Release(ctx, "k", "a", 0); return err })
		try("revoke", func() error { _, err := l.Revoke(ctx, "k", "a"); return err })
		try("holders", func() error { _, err := l.Holders(ctx, "k"); return err })
	})
}
