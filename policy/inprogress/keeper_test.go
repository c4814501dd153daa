package inprogress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func newSet(t *testing.T, rules ...policy.Rule) *policy.Set {
	t.Helper()
	set, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newKeeper(t *testing.T, set *policy.Set) *Keeper {
	t.Helper()
	k := New(Options{})
	if err := k.Use(set); err != nil {
		t.Fatal(err)
	}
	return k
}

// boundsOf is what bounds a user's request.
func boundsOf(t *testing.T, set *policy.Set, user string) []policy.Bound {
	t.Helper()
	out, err := set.Decide(policy.Descriptor{{Name: "user", Value: user}}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bounds
}

func byUser(name string, limit int64) policy.Rule {
	return policy.Rule{Name: name, Per: []policy.Part{{Entry: "user"}}, InProgress: &policy.InProgress{Limit: limit}}
}

func forAll(name string, limit int64) policy.Rule {
	return policy.Rule{Name: name, InProgress: &policy.InProgress{Limit: limit}}
}

func refusedBy(t *testing.T, err error) *Refusal {
	t.Helper()
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok {
		t.Fatalf("got %v, want a refusal", err)
	}
	return refusal
}

func TestAllOrNone(t *testing.T) {
	t.Parallel()
	set := newSet(t, byUser("each", 2), forAll("all", 3))
	k := newKeeper(t, set)
	var held []flow.Permit
	for i, user := range []string{"ada", "ada", "bob"} {
		var err error
		if held, err = k.Enter(t.Context(), boundsOf(t, set, user), held); err != nil || len(held) != 2*(i+1) {
			t.Fatalf("%s: %d permits, %v", user, len(held), err)
		}
	}
	for _, c := range []struct {
		user, rule string
		own        bool
	}{{"ada", "each", true}, {"bob", "all", false}} {
		more, err := k.Enter(t.Context(), boundsOf(t, set, c.user), held)
		r := refusedBy(t, err)
		if len(more) != len(held) || r.Bound.Rule.Name != c.rule || r.Own() != c.own || r.Rejection.Reason != flow.ReasonBusy {
			t.Errorf("%s is refused by %v, with %d permits", c.user, r, len(more))
		}
	}
	if k.InUse("each", "bob") != 1 || k.InUse("each", "ada") != 2 || k.InUse("all", "") != 3 {
		t.Errorf("what was refused holds something: %+v", k.Stats())
	}
	Leave(held, flow.Ignore)
	for _, s := range k.Stats() {
		if s.InUse != 0 || s.Keys != 0 || s.Refused[flow.ReasonBusy] != 1 {
			t.Errorf("at the end: %+v", s)
		}
	}
}

// TestUses: what is in use is known by key, of permits of this process and of shared ones.
func TestUses(t *testing.T) {
	t.Parallel()
	all := byUser("all", 5)
	all.InProgress.Shared = true
	set := newSet(t, byUser("each", 5), all, forAll("one", 9))
	k := New(Options{Permits: memory.New()})
	if err := k.Use(set); err != nil {
		t.Fatal(err)
	}
	var held []flow.Permit
	for _, user := range []string{"ada", "bob", "bob"} {
		var err error
		if held, err = k.Enter(t.Context(), boundsOf(t, set, user), held); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		rule   string
		shared bool
		want   []flow.Use
	}{
		{"each", false, []flow.Use{{Key: "bob", InUse: 2}, {Key: "ada", InUse: 1}}},
		{"all", true, []flow.Use{{Key: "bob", InUse: 2}, {Key: "ada", InUse: 1}}},
		{"one", false, []flow.Use{{InUse: 3}}},
		{"none", false, nil},
	} {
		uses := flow.Uses{Most: 9}
		if shared := k.Uses(tt.rule, &uses); shared != tt.shared || !slices.Equal(uses.List, tt.want) {
			t.Errorf("%s: %v, shared %t", tt.rule, uses.List, shared)
		}
	}
	Leave(held, flow.Ignore)
	uses := flow.Uses{Most: 9}
	if k.Uses("each", &uses); len(uses.List) > 0 {
		t.Errorf("at the end: %v", uses.List)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	dear := forAll("dear", 2)
	dear.Cost = 3
	one := forAll("one", 1)
	set := newSet(t, dear)
	_, err := newKeeper(t, set).Enter(t.Context(), boundsOf(t, set, ""), nil)
	if r := refusedBy(t, err); r.RetryAfter() != headgate.Never || r.Detail() != `The request takes 3 of what may be in progress under "dear", which is 2.` {
		t.Errorf("too dear: in %v: %s", r.RetryAfter(), r.Detail())
	}
	set = newSet(t, one)
	k := newKeeper(t, set)
	if _, err = k.Enter(t.Context(), boundsOf(t, set, ""), nil); err != nil {
		t.Fatal(err)
	}
	_, err = k.Enter(t.Context(), boundsOf(t, set, ""), nil)
	if r := refusedBy(t, err); r.RetryAfter() <= 0 || r.Detail() != `One request is in progress under "one", and no more may be.` || !errors.Is(err, flow.ErrShed) {
		t.Errorf("busy: in %v: %s", r.RetryAfter(), r.Detail())
	}
}

// TestPassesTwice: a request that comes by a second time within itself takes nothing and
// does not wait for itself.
func TestPassesTwice(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		rule := forAll("all", 1)
		rule.InProgress.Wait = policy.MaxWait
		set := newSet(t, rule)
		k := newKeeper(t, set)
		held, err := k.Enter(t.Context(), boundsOf(t, set, ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		inside := Context(t.Context(), held)
		again, err := k.Enter(inside, boundsOf(t, set, ""), nil)
		if err != nil || len(again) != 0 {
			t.Errorf("the second pass has %d permits, %v", len(again), err)
		}
		// Another request waits, for as long as it may.
		began := time.Now()
		_, err = k.Enter(t.Context(), boundsOf(t, set, ""), nil)
		if r := refusedBy(t, err); r.Rejection.Reason != flow.ReasonWaited || time.Since(began) != policy.MaxWait {
			t.Errorf("another request: %v after %v", r, time.Since(began))
		}
		Leave(held, flow.Ignore)
		s := k.Stats()[0]
		if s.InUse != 0 || s.Refused[flow.ReasonWaited] != 1 || s.WaitSum != policy.MaxWait || s.Waits[len(s.Waits)-1] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestHangsUp: who hangs up while waiting leaves the queue, and what it held is free.
func TestHangsUp(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		all := forAll("all", 1)
		all.InProgress.Wait = time.Minute
		set := newSet(t, byUser("each", 1), all)
		k := newKeeper(t, set)
		held, err := k.Enter(t.Context(), boundsOf(t, set, "ada"), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := k.Enter(ctx, boundsOf(t, set, "bob"), nil)
			ended <- err
		}()
		bubbletest.Wait()
		if k.InUse("each", "bob") != 1 || k.Stats()[0].Waiting != 1 {
			t.Errorf("bob does not wait: %+v", k.Stats())
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("bob's request ends with %v", err)
		}
		if k.InUse("each", "bob") != 0 || k.Stats()[0].Waiting != 0 {
			t.Errorf("bob left something: %+v", k.Stats())
		}
		Leave(held, flow.Ignore)
	})
}

// TestReload: new numbers hold for what is in progress and for who waits; a rule that is
// gone is forgotten when nothing is in progress under it, and found again before that.
func TestReload(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		rule := func(limit int64) policy.Rule {
			r := forAll("all", limit)
			r.InProgress.Wait = time.Minute
			return r
		}
		before := newSet(t, rule(2))
		k := newKeeper(t, before)
		var held []flow.Permit
		for range 2 {
			var err error
			if held, err = k.Enter(t.Context(), boundsOf(t, before, ""), held); err != nil {
				t.Fatal(err)
			}
		}
		var more []flow.Permit
		done := make(chan error, 1)
		go func() {
			var err error
			more, err = k.Enter(t.Context(), boundsOf(t, before, ""), nil)
			done <- err
		}()
		bubbletest.Wait()
		wider := newSet(t, rule(3))
		if err := k.Use(wider); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil { // who waited, by the rules of before
			t.Fatal(err)
		}
		held = append(held, more...)

		narrow := newSet(t, forAll("all", 1))
		if err := k.Use(narrow); err != nil {
			t.Fatal(err)
		}
		_, err := k.Enter(t.Context(), boundsOf(t, narrow, ""), nil)
		if r := refusedBy(t, err); r.Rejection.InUse != 3 || r.Rejection.Limit != 1 {
			t.Errorf("narrowed: %v", r)
		}
		gone := newSet(t, forAll("other", 1))
		if err := k.Use(gone); err != nil {
			t.Fatal(err)
		}
		if n := len(k.Stats()); n != 2 {
			t.Errorf("with a rule that is gone, %d are kept, want 2", n)
		}
		if err := k.Use(narrow); err != nil || k.InUse("all", "") != 3 {
			t.Errorf("a rule that is back has %d in progress, want 3: %v", k.InUse("all", ""), err)
		}
		Leave(held, flow.Ignore)
		if err := k.Use(gone); err != nil {
			t.Fatal(err)
		}
		if s := k.Stats(); len(s) != 1 || s[0].Rule != "other" {
			t.Errorf("kept are %+v", s)
		}
		// A request by the rules of before takes its permit all the same.
		if late, err := k.Enter(t.Context(), boundsOf(t, narrow, ""), nil); err != nil || len(late) != 1 {
			t.Errorf("a late request has %d permits, %v", len(late), err)
		}
	})
}

// TestShared: keepers over one store count together, tariffs, waits and reloads included,
// and a request is told when its permit is lost.
func TestShared(t *testing.T) {
	t.Parallel()
	rule := policy.Rule{
		Name: "each", Per: []policy.Part{{Entry: "user"}}, InProgress: &policy.InProgress{Entry: "user", Values: map[string]int64{"pro": 2}, Limit: 1, Shared: true, TTL: time.Minute},
		Overrides: []policy.Override{{Match: []policy.Condition{policy.Equal("user", "vip")}, InProgress: 3}},
	}
	set := newSet(t, rule)
	permits := memory.New()
	var keepers []*Keeper
	for range 2 {
		k := New(Options{Permits: permits, Owner: "test"})
		if err := k.Use(set); err != nil {
			t.Fatal(err)
		}
		keepers = append(keepers, k)
	}
	var held []flow.Permit
	for _, c := range []struct {
		user  string
		limit int
	}{{"free", 1}, {"pro", 2}, {"vip", 3}} {
		for i := range c.limit + 1 {
			var err error
			held, err = keepers[i%2].Enter(t.Context(), boundsOf(t, set, c.user), held)
			if (err == nil) != (i < c.limit) {
				t.Errorf("%s: request %d: %v", c.user, i+1, err)
			}
			if err != nil && refusedBy(t, err).Rejection.Limit != int64(c.limit) {
				t.Errorf("%s is refused by %v", c.user, err)
			}
		}
	}
	holders, err := permits.Holders(t.Context(), StoreKey("each", "vip"))
	if err != nil || holders.InUse() != 3 || !strings.HasPrefix(holders.Leases[0].Holder, "test/") {
		t.Errorf("the store has %+v, %v", holders, err)
	}

	// Other settings go on where the ones before were.
	rule.InProgress = &policy.InProgress{Limit: 1, Shared: true, Wait: time.Minute, TTL: 30 * time.Second}
	next := newSet(t, rule)
	if err := keepers[0].Use(next); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := keepers[0].Enter(short, boundsOf(t, next, "free"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after a reload: %v", err)
	}
	waited := make(chan error, 1)
	go func() {
		more, err := keepers[0].Enter(t.Context(), boundsOf(t, next, "free"), nil)
		Leave(more, flow.Ignore)
		waited <- err
	}()
	Leave(held[:1], flow.Ignore)
	if err := <-waited; err != nil {
		t.Errorf("who waits: %v", err)
	}

	// The last one is lost: its context ends, and says why.
	ctx := Context(t.Context(), held[len(held)-1:])
	if Lost(ctx) {
		t.Error("a permit is lost that is held")
	}
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	for i, k := range keepers {
		if err := k.Close(given); !errors.Is(err, context.Canceled) {
			t.Errorf("keeper %d is closed while permits are held: %v", i, err)
		}
		if _, err := k.Enter(t.Context(), boundsOf(t, set, "free"), nil); err == nil {
			t.Errorf("keeper %d is closed and gives permits", i)
		}
	}
	<-ctx.Done()
	if !Lost(ctx) {
		t.Errorf("the context ends with %v", context.Cause(ctx))
	}
	Leave(held, flow.Ignore)
}

// broken is permits of a store that does not answer.
type broken struct{ store.Permits }

func (broken) Acquire(context.Context, store.PermitRequest) (store.PermitAnswer, error) {
	return store.PermitAnswer{}, headgate.ErrUnavailable
}

func (broken) Release(context.Context, string, string, int64) (bool, error) {
	return false, headgate.ErrUnavailable
}

// TestSharedWithoutAnswer: rules say what becomes of requests then, and else the options do.
func TestSharedWithoutAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, options headgate.OnError
		mode          policy.Mode
		admits        int // of two at a time
	}{
		{headgate.OnErrorReturn, headgate.OnErrorReturn, policy.ModeEnforce, 0},
		{headgate.OnErrorReturn, headgate.OnErrorDeny, policy.ModeEnforce, 0},
		{headgate.OnErrorReturn, headgate.OnErrorAllow, policy.ModeEnforce, 2},
		{headgate.OnErrorDeny, headgate.OnErrorAllow, policy.ModeEnforce, 0},
		{headgate.OnErrorAllow, headgate.OnErrorDeny, policy.ModeEnforce, 2},
		{headgate.OnErrorLocal, headgate.OnErrorDeny, policy.ModeEnforce, 1},
		{headgate.OnErrorDeny, headgate.OnErrorDeny, policy.ModeShadow, 2},
	} {
		set := newSet(t, policy.Rule{Name: "all", Mode: c.mode, Hints: headgate.Hints{OnError: c.rule}, InProgress: &policy.InProgress{Limit: 1, Shared: true}})
		k := New(Options{Permits: broken{}, OnError: c.options})
		if err := k.Use(set); err != nil {
			t.Fatal(err)
		}
		var held []flow.Permit
		admitted := 0
		for range 2 {
			var err error
			if held, err = k.Enter(t.Context(), boundsOf(t, set, ""), held); err == nil {
				admitted++
			} else if _, refused := errors.AsType[*Refusal](err); !refused && !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if admitted != c.admits {
			t.Errorf("%+v: %d are admitted", c, admitted)
		}
		Leave(held, flow.Ignore)
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSharedNeedsAStore: a bound over all processes is never kept in one of them only.
func TestSharedNeedsAStore(t *testing.T) {
	t.Parallel()
	rule := forAll("all", 1)
	rule.InProgress.Shared = true
	k := New(Options{})
	if err := k.Use(newSet(t, forAll("other", 1), rule)); !errors.Is(err, headgate.ErrInvalid) || len(k.Stats()) != 0 {
		t.Errorf("%v, and %d are kept", err, len(k.Stats()))
	}
}

// TestMany: under any concurrency, reloads among them, never more is in progress than the
// largest limit there was, all permits come back, and no key is left.
func TestMany(t *testing.T) {
	t.Parallel()
	const limit, users = 3, 5
	waiting := byUser("each", limit)
	waiting.InProgress.Wait = time.Minute
	sets := []*policy.Set{
		newSet(t, waiting, forAll("all", 8)),
		newSet(t, byUser("each", limit-1), forAll("all", 6)),
		newSet(t, forAll("all", 7)),
	}
	k := newKeeper(t, sets[0])
	var current atomic.Pointer[policy.Set]
	current.Store(sets[0])
	var busy, all [users]atomic.Int64
	var total atomic.Int64
	var group sync.WaitGroup
	for worker := range 16 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 400 {
				if worker == 0 && random.IntN(8) == 0 {
					next := sets[random.IntN(len(sets))]
					if err := k.Use(next); err != nil {
						t.Error(err)
					}
					current.Store(next)
				}
				set, user := current.Load(), random.IntN(users)
				bounds := boundsOf(t, set, fmt.Sprint("user", user))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
				held, err := k.Enter(ctx, bounds, nil)
				cancel()
				if err != nil {
					continue
				}
				if len(bounds) == 2 {
					if n := busy[user].Add(1); n > limit {
						t.Errorf("%d of one user are in progress", n)
					}
				}
				if n := total.Add(1); n > 8 {
					t.Errorf("%d are in progress", n)
				}
				all[user].Add(1)
				time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
				total.Add(-1)
				if len(bounds) == 2 {
					busy[user].Add(-1)
				}
				Leave(held, flow.Success)
			}
		})
	}
	group.Wait()
	for _, s := range k.Stats() {
		if s.InUse != 0 || s.Waiting != 0 || s.Keys != 0 || s.Admitted == 0 {
			t.Errorf("at the end %+v", s)
		}
	}
}

// TestEnterAllocates: nothing but what a caller brings is allocated where nobody waits.
func TestEnterAllocates(t *testing.T) {
	set := newSet(t, byUser("each", 2), forAll("all", 3))
	k := newKeeper(t, set)
	bounds := boundsOf(t, set, "ada")
	room := make([]flow.Permit, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		held, err := k.Enter(t.Context(), bounds, room)
		if err != nil {
			t.Fatal(err)
		}
		Leave(held, flow.Success)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestForgottenWhileEntered: a rule leaves the policy and comes back while requests enter under it.
// One that has found the rule before it was forgotten still counts.
func TestForgottenWhileEntered(t *testing.T) {
	t.Parallel()
	with, without := newSet(t, byUser("each", 1)), newSet(t, forAll("all", 7))
	k := newKeeper(t, with)
	bounds := boundsOf(t, with, "ada")
	var busy atomic.Int64
	var over sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 4 {
		over.Go(func() {
			for ctx.Err() == nil {
				held, err := k.TryEnter(ctx, bounds, nil)
				if err != nil {
					continue
				}
				if n := busy.Add(1); n > 1 {
					t.Errorf("%d are in progress, want 1 at most", n)
					cancel()
				}
				runtime.Gosched()
				busy.Add(-1)
				Leave(held, flow.Success)
			}
		})
	}
	for range 5_000 {
		if ctx.Err() != nil {
			break
		}
		for _, set := range []*policy.Set{without, with} {
			if err := k.Use(set); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	over.Wait()
}
