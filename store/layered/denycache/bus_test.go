package denycache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/layered/internal/layer"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

// fleet are nodes with a store and a bus in common.
type fleet struct {
	t      *testing.T
	behind *counting
	wire   *layertest.Wire
	nodes  []*denycache.Layer
}

func newFleet(t *testing.T, nodes int, delay time.Duration, o denycache.Options) *fleet {
	f := &fleet{t: t, behind: newCounting(), wire: layertest.NewWire(delay)}
	o.Bus = f.wire
	for range nodes {
		f.nodes = append(f.nodes, open(t, f.behind, o))
	}
	bubbletest.Wait() // all listen
	return f
}

func (f *fleet) close() {
	for _, d := range f.nodes {
		if err := d.Close(context.Background()); err != nil {
			f.t.Error(err)
		}
	}
}

// do asks a node, and says whether it was admitted and whether the store was asked.
func (f *fleet) do(node int, op headgate.Op, c headgate.Check) (allowed, asked bool) {
	f.t.Helper()
	before := f.behind.calls
	got, err := f.nodes[node].Store().Take(f.t.Context(), op, []headgate.Check{c}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return headgate.NewVerdict(got).Allowed, f.behind.calls > before
}

// deny has a node deny a check and remember it.
func (f *fleet) deny(node int, c headgate.Check) {
	f.t.Helper()
	for range 1000 {
		if allowed, _ := f.do(node, headgate.OpTake, c); !allowed {
			if _, asked := f.do(node, headgate.OpTake, c); asked {
				f.t.Fatalf("node %d does not remember a denial", node)
			}
			return
		}
	}
	f.t.Fatal("it is never denied")
}

// TestAllNodesForget: what one node gives back, resets, settles or cancels is admitted
// on the others as soon as a message has travelled, and not before somebody asks.
func TestAllNodesForget(t *testing.T) {
	const delay = 3 * time.Millisecond
	rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 5, Period: time.Hour, Align: headgate.AlignFirst})
	login := headgate.MustRule("login", headgate.PerHour(1), headgate.Blocking(1, time.Minute, time.Hour, time.Hour))
	for name, free := range map[string]func(f *fleet, c headgate.Check, r headgate.Reservation) error{
		"refund": func(f *fleet, c headgate.Check, _ headgate.Reservation) error {
			_, err := f.nodes[0].Store().Take(f.t.Context(), headgate.OpRefund, []headgate.Check{c}, nil)
			return err
		},
		"reset": func(f *fleet, c headgate.Check, _ headgate.Reservation) error {
			_, err := f.nodes[0].Store().Take(f.t.Context(), headgate.OpReset, []headgate.Check{c}, nil)
			return err
		},
		"settle": func(f *fleet, _ headgate.Check, r headgate.Reservation) error {
			_, err := f.nodes[0].Store().(headgate.Ledger).Settle(f.t.Context(), r, []int64{1}, nil)
			return err
		},
		"cancel": func(f *fleet, _ headgate.Check, r headgate.Reservation) error {
			// As somebody would who knows no more of it than its id.
			ledger := f.nodes[0].Store().(headgate.Ledger)
			r, err := ledger.Recall(f.t.Context(), r.ID)
			if err != nil {
				return err
			}
			_, err = ledger.Settle(f.t.Context(), r, []int64{0}, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, delay, denycache.Options{})
				defer f.close()
				c := headgate.Check{Rule: rule, Key: "k", Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
				two := c
				two.Cost = 2
				r, _, err := f.nodes[0].Store().(headgate.Ledger).Reserve(t.Context(), headgate.Terms{For: time.Hour}, []headgate.Check{two}, nil)
				if err != nil {
					t.Fatal(err)
				}
				for node := range f.nodes {
					f.deny(node, c)
				}
				if err := free(f, c, r); err != nil {
					t.Fatal(err)
				}
				if allowed, asked := f.do(1, headgate.OpTake, c); allowed || asked {
					t.Errorf("before the message: allowed %t, asked %t", allowed, asked)
				}
				time.Sleep(delay)
				bubbletest.Wait()
				if _, asked := f.do(2, headgate.OpPeek, c); !asked {
					t.Error("a peek was answered from memory")
				}
				if allowed, _ := f.do(1, headgate.OpTake, c); !allowed {
					t.Error("another node denies what was freed")
				}
			})
		})
	}
	t.Run("block", func(t *testing.T) {
		bubbletest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, delay, denycache.Options{})
			defer f.close()
			c := headgate.Check{Rule: login, Key: "k"}
			f.do(0, headgate.OpTake, c)
			f.do(0, headgate.OpTake, c)
			f.deny(0, c)
			f.deny(1, c)
			f.do(0, headgate.OpReset, c)
			time.Sleep(delay)
			bubbletest.Wait()
			if allowed, _ := f.do(1, headgate.OpTake, c); !allowed {
				t.Error("another node blocks a key that was reset")
			}
		})
	})
}

// TestNewsHideKeys: a message has neither keys nor names of rules, and is short
// however many keys there are.
func TestNewsHideKeys(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 0, denycache.Options{})
		defer f.close()
		resume := f.wire.Hang()
		rule := headgate.MustRule("password-reset", headgate.PerHour(5))
		for i := range 1000 {
			f.do(0, headgate.OpReset, headgate.Check{Rule: rule, Key: fmt.Sprintf("alice%d@example.com", i)})
		}
		resume()
		time.Sleep(time.Second)
		if n := len(f.wire.Sent()); n < 9 || n > 20 {
			t.Errorf("%d messages for 1000 keys", n)
		}
		for _, m := range f.wire.Sent() {
			if len(m) > 1024 || bytes.Contains(m, []byte("alice")) || bytes.Contains(m, []byte("password")) {
				t.Errorf("a message of %d bytes: %q", len(m), m)
			}
		}
		if s := f.nodes[0].Stats(); s.Published != 1000 || s.Dropped != 0 || !s.Listening || s.Received != int64(len(f.wire.Sent())) {
			t.Errorf("%+v", s)
		}
	})
}

// TestNewsNeverWait: a bus that hangs or fails costs a refund nothing, and what it
// drops is counted; the others find out when they no longer trust what they know.
func TestNewsNeverWait(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		bubbletest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, 0, denycache.Options{Trust: 30 * time.Second})
			defer f.close()
			if hangs {
				f.wire.Hang()
			} else {
				f.wire.Fail(errors.New("no permission"))
			}
			c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(5)), Key: "k", Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
			f.deny(1, c)
			start := time.Now()
			const refunds = 20_000
			for i := range refunds {
				f.do(0, headgate.OpReset, headgate.Check{Rule: c.Rule, Key: fmt.Sprint(i)})
			}
			f.do(0, headgate.OpReset, c)
			if waited := time.Since(start); waited > 0 {
				t.Errorf("%d refunds waited %v for the bus", refunds, waited)
			}
			time.Sleep(29 * time.Second)
			if allowed, asked := f.do(1, headgate.OpTake, c); allowed || asked {
				t.Errorf("allowed %t, asked %t, though nobody has told the node", allowed, asked)
			}
			if s := f.nodes[0].Stats(); s.Dropped == 0 || s.Error == nil || s.Published != 0 {
				t.Errorf("hangs %t: %+v", hangs, s)
			}
			time.Sleep(time.Second)
			if allowed, _ := f.do(1, headgate.OpTake, c); !allowed {
				t.Error("denied for longer than it may be trusted")
			}
		})
	}
}

// TestConnectingForgets: who has not listened for a while forgets everything.
func TestConnectingForgets(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 0, denycache.Options{Trust: time.Hour})
		defer f.close()
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(5)), Key: "k", Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
		f.deny(1, c)
		f.wire.Cut()
		f.do(0, headgate.OpRefund, c)
		time.Sleep(time.Second)
		bubbletest.Wait()
		if allowed, _ := f.do(1, headgate.OpTake, c); !allowed {
			t.Error("a node that is connected again denies what was freed meanwhile")
		}
		f.deny(1, c)
	})
}

// TestForeignNews: messages that this version does not know are passed over.
func TestForeignNews(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 0, denycache.Options{})
		defer f.close()
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(5)), Key: "k", Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
		f.deny(0, c)
		foreign := [][]byte{nil, {}, {1}, {2, 1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 3}, append([]byte{1}, make([]byte, 8*121)...), bytes.Repeat([]byte{0xff}, 1<<20)}
		for _, m := range foreign {
			f.wire.Say(m)
		}
		f.wire.Say(append([]byte{1}, make([]byte, 8*120)...)) // keys that nobody knows
		time.Sleep(time.Millisecond)
		bubbletest.Wait()
		if s := f.nodes[0].Stats(); s.Unknown != int64(len(foreign)) || s.Received != int64(len(foreign))+1 || s.Keys != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestKeyNames: processes of other versions must know the same names.
func TestKeyNames(t *testing.T) {
	for _, key := range []string{"", "k", "\x00\xff", string(make([]byte, 1024))} {
		h := fnv.New64a()
		fmt.Fprintf(h, "rule %s", key)
		if got := layer.CounterOf(&headgate.Check{Rule: headgate.MustRule("rule", headgate.PerHour(1)), Key: key}).Hash(); got != h.Sum64() {
			t.Errorf("%q: %x, want %x", key, got, h.Sum64())
		}
	}
}

// gated is a store whose next answer waits, when it has decided already.
type gated struct {
	*memory.Store
	decided, answer chan struct{}
}

func (g *gated) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := g.Store.Take(ctx, op, checks, dst)
	if op == headgate.OpTake && err == nil && !headgate.NewVerdict(out).Allowed && g.decided != nil {
		g.decided <- struct{}{}
		<-g.answer
	}
	return out, err
}

// TestLateDenials: a denial that the store decided before units came back is not
// remembered after that was heard.
func TestLateDenials(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		behind := &gated{Store: memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))}
		w := layertest.NewWire(0)
		here := open(t, behind, denycache.Options{All: true, Bus: w})
		there := open(t, behind.Store, denycache.Options{All: true, Bus: w})
		defer here.Close(t.Context())
		defer there.Close(t.Context())
		bubbletest.Wait()
		c := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(1)), Key: "k"}}
		take := func(d *denycache.Layer, op headgate.Op) bool {
			got, err := d.Store().Take(t.Context(), op, c, nil)
			if err != nil {
				t.Error(err)
			}
			return headgate.NewVerdict(got).Allowed
		}
		take(here, headgate.OpTake)
		behind.decided, behind.answer = make(chan struct{}), make(chan struct{})
		go take(here, headgate.OpTake)
		<-behind.decided
		take(there, headgate.OpRefund)
		bubbletest.Wait()
		close(behind.answer)
		bubbletest.Wait()
		if !take(here, headgate.OpTake) {
			t.Error("a denial from before the refund was remembered")
		}
	})
}

// TestNeverDeniesWhatIsFree holds three nodes on one store to the store, in random
// histories: a node denies from memory what the store would admit only while the message
// that frees it is on its way.
func TestNeverDeniesWhatIsFree(t *testing.T) {
	const delay, keys, steps = 2 * time.Millisecond, 4, 4000
	const pause = 10 * time.Millisecond // between two messages
	for seed := range uint64(race.Fewer(24)) {
		bubbletest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			f := newFleet(t, 3, delay, denycache.Options{Trust: time.Minute})
			defer f.close()
			rules := []*headgate.Rule{
				headgate.MustRule("bucket", headgate.Per(3, time.Second)),
				headgate.MustRule("window", headgate.Sliding(4, 700*time.Millisecond), headgate.Sliding(7, 2*time.Second)),
				headgate.MustRule("blocks", headgate.Per(5, time.Second), headgate.Blocking(3, time.Second, 500*time.Millisecond, 4*time.Second)),
			}
			type freed struct {
				node int
				at   time.Time
			}
			last := map[string]freed{}
			type open struct {
				headgate.Reservation
				name string
			}
			var reserved []open
			fromMemory, excused := 0, 0
			for range steps {
				time.Sleep(time.Duration(rng.Int64N(int64(2 * delay))))
				bubbletest.Wait()
				node, i := rng.IntN(len(f.nodes)), rng.IntN(len(rules))
				c := headgate.Check{Rule: rules[i], Key: fmt.Sprint(rng.IntN(keys)), Cost: 1 + rng.Int64N(2), Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
				name := c.Rule.Name() + c.Key
				store := f.nodes[node].Store().(headgate.Ledger)
				var err error
				switch n := rng.IntN(24); {
				case n < 2:
					_, err = store.Take(t.Context(), headgate.OpRefund, []headgate.Check{c}, nil)
					last[name] = freed{node, time.Now()}
				case n == 2:
					_, err = store.Take(t.Context(), headgate.OpReset, []headgate.Check{c}, nil)
					last[name] = freed{node, time.Now()}
				case n < 5:
					var r headgate.Reservation
					if r, _, err = store.Reserve(t.Context(), headgate.Terms{For: time.Hour}, []headgate.Check{c}, nil); r.ID != "" {
						reserved = append(reserved, open{r, name})
					}
				case n < 7 && len(reserved) > 0:
					at := rng.IntN(len(reserved))
					r := reserved[at]
					reserved = append(reserved[:at], reserved[at+1:]...)
					_, err = store.Settle(t.Context(), r.Reservation, []int64{rng.Int64N(3)}, nil)
					last[r.name] = freed{node, time.Now()}
				case n == 7:
					_, err = store.Take(t.Context(), headgate.OpCharge, []headgate.Check{c}, nil)
				default:
					// What the store would say, as of now.
					var would, got []headgate.Decision
					if would, err = f.behind.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil); err != nil {
						t.Fatal(err)
					}
					if got, err = store.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil); err != nil {
						t.Fatal(err)
					}
					if got[0].Source != headgate.SourceCache {
						break
					}
					fromMemory++
					if !headgate.NewVerdict(would).Allowed {
						break
					}
					excused++
					if by := last[name]; by.node == node || time.Since(by.at) >= delay+pause {
						t.Fatalf("node %d denies %+v from memory, %v after node %d freed it: %+v", node, c, time.Since(by.at), by.node, got)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if fromMemory < steps/10 || excused == 0 {
				t.Errorf("%d of %d answers from memory, %d of them excused: this tests nothing", fromMemory, steps, excused)
			}
		})
	}
}
