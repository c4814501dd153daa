package topologies

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// reservationsOverSlots: reservations whose counters are in several slots of a
// cluster are settled, cancelled, repeated, found again by their ID and given back as
// the model does it, and a request that one slot denies leaves nothing in the others.
func reservationsOverSlots(t *testing.T, c *servers.Cluster) {
	client := connect(t, rueidis.ClientOption{InitAddress: []string{c.Nodes[0].Addr()}})
	clock := storetest.NewClock(storetest.Epoch)
	store := stores.Open(t, client, clock.Now)
	model := storetest.NewModel(clock.Now)
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(11, 12))
	rules := make([]*headgate.Rule, 5)
	for i := range rules {
		limits := []headgate.Limit{headgate.Sliding(40, time.Minute), headgate.PerMinute(60)}
		rules[i] = headgate.MustRule(fmt.Sprintf("r%d", i), limits[:1+i%2]...)
	}
	type both struct{ got, want headgate.Reservation }
	var past []both
	look := func(step int) {
		t.Helper()
		for i, r := range rules {
			for _, key := range []string{"a", "b"} {
				c := []headgate.Check{{Rule: r, Key: key}}
				got, err := store.Take(ctx, headgate.OpPeek, c, nil)
				if err != nil {
					t.Fatal(err)
				}
				want, err := model.Take(ctx, headgate.OpPeek, c, nil)
				if err != nil {
					t.Fatal(err)
				}
				for j := range got {
					if got[j].Remaining != want[j].Remaining {
						t.Fatalf("step %d, rule %d, key %s: %d remain of %v, want %d", step, i, key, got[j].Remaining, got[j].Limit, want[j].Remaining)
					}
				}
			}
		}
	}
	for step := range 400 {
		clock.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if err := store.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		if len(past) > 0 && rng.IntN(2) == 0 {
			p := past[max(0, len(past)-4)+rng.IntN(min(4, len(past)))]
			units := p.got.Units(rng.Int64N(6))
			r := p.got
			if rng.IntN(2) == 0 { // by another process
				found, err := store.Recall(ctx, p.got.ID)
				_, wanted := model.Recall(ctx, p.want.ID)
				if errors.Is(err, headgate.ErrNoReservation) != errors.Is(wanted, headgate.ErrNoReservation) {
					t.Fatalf("step %d: recall: %v, want %v", step, err, wanted)
				}
				if err == nil {
					r = found
				}
			}
			for range 1 + rng.IntN(2) {
				_, err := store.Settle(ctx, r, units, nil)
				_, wanted := model.Settle(ctx, p.want, units, nil)
				for _, e := range []error{headgate.ErrConflict, headgate.ErrNoReservation} {
					if errors.Is(err, e) != errors.Is(wanted, e) {
						t.Fatalf("step %d: settle at %v: %v, want %v", step, units, err, wanted)
					}
				}
			}
		} else {
			var checks []headgate.Check
			for _, i := range rng.Perm(len(rules))[:1+rng.IntN(len(rules))] {
				checks = append(checks, headgate.Check{
					Rule: rules[i], Key: string('a' + rune(rng.IntN(2))), Cost: 1 + rng.Int64N(12),
					Shadow: rng.IntN(6) == 0, GiveBack: rng.IntN(2) == 0,
				})
			}
			terms := headgate.Terms{ID: fmt.Sprint(step), For: 5 * time.Second}
			for range 1 + rng.IntN(2) {
				got, _, err := store.Reserve(ctx, terms, checks, nil)
				if err != nil {
					t.Fatal(err)
				}
				want, _, err := model.Reserve(ctx, terms, checks, nil)
				if err != nil {
					t.Fatal(err)
				}
				if (got.ID == "") != (want.ID == "") || len(got.Checks) != len(want.Checks) {
					t.Fatalf("step %d: %+v, want %+v", step, got, want)
				}
				if got.ID != "" {
					past = append(past, both{got, want})
				}
			}
		}
		look(step)
	}
}

// repeatedAfterFailure: a request that one node could not take is charged in all
// places when it is repeated, once, and can be settled.
func repeatedAfterFailure(t *testing.T, c *servers.Cluster) {
	store, prefix := openCluster(t, c, 30*time.Second)
	checks := checksOn(t, c, prefix, 100, c.Nodes[0], c.Nodes[1])
	for i := range checks {
		checks[i].Cost = 10
	}
	room := func(bytes string) {
		t.Helper()
		if _, err := c.Nodes[1].Do(t.Context(), "CONFIG", "SET", "maxmemory", bytes); err != nil {
			t.Fatal(err)
		}
	}
	look := func(want int64) {
		t.Helper()
		for i := range checks {
			if got := peek(t, store, checks[i]); got != want {
				t.Errorf("check %d: %d remain, want %d", i, got, want)
			}
		}
	}
	terms := headgate.Terms{ID: "again"}
	room("1")
	for range 2 {
		if _, d, err := store.Reserve(t.Context(), terms, checks, nil); !errors.Is(err, headgate.ErrUnavailable) {
			t.Fatalf("%+v, %v; want ErrUnavailable", d, err)
		}
	}
	room("0")
	look(100)
	var r headgate.Reservation
	for range 2 {
		var err error
		if r, _, err = store.Reserve(t.Context(), terms, checks, nil); err != nil {
			t.Fatal(err)
		}
		look(90)
	}
	if _, err := store.Settle(t.Context(), r, r.Units(3), nil); err != nil {
		t.Fatal(err)
	}
	look(97)
}
