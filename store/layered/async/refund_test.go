package async_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

// TestAsyncRefunds: every unit that is refunded comes back, at whichever node, before the
// node that admitted it has reported it or after that.
func TestAsyncRefunds(t *testing.T) {
	const requests = 300
	for _, limit := range []headgate.Limit{
		headgate.Per(100_000, 300*24*time.Hour),
		headgate.Sliding(100_000, time.Hour),
		{Algorithm: headgate.FixedWindow, Count: 100_000, Period: time.Hour},
		{Algorithm: headgate.SlidingCounter, Count: 100_000, Period: time.Hour},
	} {
		for _, elsewhere := range []bool{false, true} {
			for _, named := range []bool{false, true} {
				for _, after := range []time.Duration{0, 30 * time.Millisecond, 3 * time.Second} {
					t.Run(fmt.Sprint(limit.Algorithm, " elsewhere ", elsewhere, " named ", named, " after ", after), func(t *testing.T) {
						bubbletest.Test(t, func(t *testing.T) {
							store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
							here := open(t, store, async.Options{})
							there := open(t, store, async.Options{})
							if !elsewhere {
								there = here
							}
							c := anAsync(limit)
							do := func(op headgate.Op, a *async.Layer, at int64) headgate.Decision {
								t.Helper()
								c := c
								c.At = headgate.Instant(at)
								d, err := a.Store().Take(t.Context(), op, []headgate.Check{c}, nil)
								if err != nil || len(d) != 1 || !d[0].Allowed {
									t.Fatal(d, err)
								}
								return d[0]
							}
							for range requests {
								at := do(headgate.OpTake, here, 0).At
								if !named {
									at = 0
								}
								time.AfterFunc(after, func() { do(headgate.OpRefund, there, int64(at)) })
								time.Sleep(time.Millisecond)
							}
							time.Sleep(after + time.Second)
							if used := limit.Capacity() - leftInStore(t, store, c); used != 0 {
								t.Errorf("%d of %d units are in use after all were refunded; %+v", used, requests, there.Stats())
							}
						})
					})
				}
			}
		}
	}
}

// TestAsyncRefundsAtTheEnd: what is to be given back is, when the layer ends, and a reset
// leaves nothing to give back.
func TestAsyncRefundsAtTheEnd(t *testing.T) {
	for _, reset := range []bool{false, true} {
		bubbletest.Test(t, func(t *testing.T) {
			store := layertest.NewScripted()
			a, err := async.New(store, async.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := anAsync(headgate.Sliding(1000, time.Hour))
			charge := c
			charge.Cost = 40
			layertest.Take(t, store, charge)
			ops := []headgate.Op{headgate.OpRefund}
			if reset {
				ops = append(ops, headgate.OpReset)
			}
			for _, op := range ops {
				c.Cost = 10
				if _, err := a.Store().Take(t.Context(), op, []headgate.Check{c}, nil); err != nil {
					t.Fatal(err)
				}
			}
			want := int64(970)
			if reset {
				layertest.Take(t, store, charge)
				want = 960
			}
			store.Feel(layertest.Refuses) // refunds are kept while the store does not answer
			time.Sleep(time.Second)
			store.Feel(layertest.Well)
			if err := a.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if left := leftInStore(t, store, c); left != want || a.Stats().Returning != 0 {
				t.Errorf("reset %v: %d left, want %d; %+v", reset, left, want, a.Stats())
			}
		})
	}
}

// TestAsyncAllRefundsAtTheEnd: when the layer ends, all refunds of a key are sent, however many
// of them wait.
func TestAsyncAllRefundsAtTheEnd(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		const refunds = 12 // more than are kept apart
		store := layertest.NewScripted()
		a, err := async.New(store, async.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := anAsync(headgate.Sliding(1000, time.Hour))
		charge := c
		charge.Cost = 10 * refunds
		layertest.Take(t, store, charge)
		// No refund is sent before the end, and each is due in another interval.
		c.Cost = 10
		for range refunds {
			if _, err := a.Store().Take(t.Context(), headgate.OpRefund, []headgate.Check{c}, nil); err != nil {
				t.Fatal(err)
			}
			store.Feel(layertest.Refuses)
			time.Sleep(async.DefaultInterval)
			store.Feel(layertest.Well)
		}
		if waiting := a.Stats().Returning; waiting != 10*refunds {
			t.Fatalf("%d units wait, want all %d", waiting, 10*refunds)
		}
		if err := a.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if left := leftInStore(t, store, c); left != 1000 || a.Stats().Returning != 0 {
			t.Errorf("%d left, want 1000; %+v", left, a.Stats())
		}
	})
}

// TestAsyncRefundsOfEndedWindows: units of a window that has ended are not given back to the
// one after it, and those of that one are.
func TestAsyncRefundsOfEndedWindows(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := layertest.NewScripted()
		a := open(t, store, async.Options{})
		c := anAsync(headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Minute})
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 55*time.Second)))
		var ats []int64
		for range 200 { // from five seconds before a window's end to as long after it
			ats = append(ats, int64(layertest.Take(t, a.Store(), c).Decisions[0].At))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		before := 1000 - leftInStore(t, store, c)
		back := int64(0)
		for i, at := range ats {
			if at < time.UnixMicro(ats[len(ats)-1]).Truncate(time.Minute).UnixMicro() {
				back--
			}
			back++
			one := c
			one.At = headgate.Instant(at)
			if i%7 == 0 { // most of both windows come back together
				time.Sleep(10 * time.Millisecond)
			}
			if _, err := a.Store().Take(t.Context(), headgate.OpRefund, []headgate.Check{one}, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if used := 1000 - leftInStore(t, store, c); before-used != back {
			t.Errorf("%d of %d units came back, want %d", before-used, before, back)
		}
	})
}
