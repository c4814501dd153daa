package fallback_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

func TestNodesAreCounted(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		if n := f.Stats().Nodes; n != 1 {
			t.Fatalf("%d nodes at first", n)
		}
		primary.Join(4, time.Hour)
		time.Sleep(fallback.DefaultBeat)
		if n := f.Stats().Nodes; n != 5 {
			t.Errorf("%d nodes, want 5", n)
		}
		// A store that lost its data knows nobody at first. Those who are there are
		// heard of in time.
		primary.Lose()
		time.Sleep(2 * fallback.DefaultBeat)
		if n := f.Stats().Nodes; n != 5 {
			t.Errorf("%d nodes after the data was lost, want 5 still", n)
		}
		primary.Join(2, time.Hour)
		time.Sleep(5 * fallback.DefaultBeat)
		if n := f.Stats().Nodes; n != 3 {
			t.Errorf("%d nodes in the end, want 3", n)
		}
		// An outage is no reason to believe that the others are gone.
		primary.Join(9, time.Hour)
		time.Sleep(fallback.DefaultBeat)
		layertest.Fail(t, f, primary, layertest.Refuses)
		primary.Join(9, time.Second)
		time.Sleep(time.Minute)
		layertest.Recover(t, f, primary)
		if n := f.Stats().Nodes; n != 10 {
			t.Errorf("%d nodes after an outage, want 10", n)
		}
		time.Sleep(5 * fallback.DefaultBeat)
		if n := f.Stats().Nodes; n != 1 {
			t.Errorf("%d nodes when the others had time to come back, want 1", n)
		}
	})
}

func TestNodesThatCannotBeCounted(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		primary.Deafen(true)
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal, Nodes: 3})
		time.Sleep(time.Minute)
		if s := f.Stats(); s.State != fallback.Closed || s.Nodes != 3 || !errors.Is(s.NodesError, headgate.ErrUnavailable) {
			t.Errorf("got %+v", s)
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		layertest.Recover(t, f, primary)
		primary.Deafen(false)
		time.Sleep(time.Minute)
		if s := f.Stats(); s.Nodes != 3 || s.NodesError != nil {
			t.Errorf("with one that can be counted, and three that were told of: %+v", s)
		}
	})
}

func TestNodeLeaves(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Node: "this one"})
		if !primary.There("this one") {
			t.Error("it is not there")
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if primary.There("this one") {
			t.Error("it has not left")
		}
	})
}

// TestCloseOfASickStore does not wait for it.
func TestCloseOfASickStore(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow})
		layertest.Fail(t, f, primary, layertest.Hangs)
		start := time.Now()
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > layertest.Deadline {
			t.Errorf("closing took %v", took)
		}
	})
}

// TestStoreThatIsGoneAtFirst is no error, and found out by the first requests.
func TestStoreThatIsGoneAtFirst(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		primary.Feel(layertest.Hangs)
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		layertest.Fail(t, f, primary, layertest.Hangs)
		layertest.Recover(t, f, primary)
	})
}

// TestLearning: a store that comes back without its data does not give everybody a
// fresh start, since each node knows what it has admitted.
func TestLearning(t *testing.T) {
	for _, learn := range []time.Duration{0, time.Minute} {
		bubbletest.Test(t, func(t *testing.T) {
			primary := layertest.NewScripted()
			options := fallback.Options{Learn: learn}
			nodes := []*fallback.Layer{layertest.Fallback(t, primary, options), layertest.Fallback(t, primary, options)}
			time.Sleep(time.Minute)
			c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(100, 50*time.Second)), Key: "k"}
			var before int64
			for i := range 100 {
				if layertest.Take(t, nodes[i%2].Store(), c).Allowed {
					before++
				}
			}
			primary.Lose()
			time.Sleep(fallback.DefaultBeat)
			if got := nodes[0].Stats().Learning; got != (learn > 0) {
				t.Errorf("learning: %t", got)
			}
			after := layertest.Spend(t, nodes[0].Store(), c) + layertest.Spend(t, nodes[1].Store(), c)
			if want := map[bool]int64{false: 100, true: 0}[learn > 0]; before != 100 || after != want {
				t.Errorf("learning for %v: %d admitted before, %d after the data was lost, want %d", learn, before, after, want)
			}
			if learn == 0 {
				return
			}
			// A new key gets its share from each node, and no more than the limit. A
			// refused unit charges neither side.
			c.Key = "another"
			for _, f := range nodes {
				if got := layertest.Spend(t, f.Store(), c); got != 50 {
					t.Errorf("of a new key a node admitted %d, want its share of 50", got)
				}
				v := layertest.Take(t, f.Store(), c)
				if v.Allowed || v.Decisions[0].Source != headgate.SourceLocal || v.RetryAfter <= 0 {
					t.Errorf("got %+v", v)
				}
			}
			if got := used(t, primary, c)[0]; got != 100 {
				t.Errorf("the store counts %d", got)
			}
			time.Sleep(learn)
			if nodes[0].Stats().Learning {
				t.Error("still learning")
			}
			if got := layertest.Spend(t, nodes[0].Store(), c); got != 100 {
				t.Errorf("a node alone admitted %d after learning, want 100", got)
			}
		})
	}
}

// TestLearningGivesBack: what fits a node's share and not the store's limit, or
// gets no answer, leaves no trace in the share.
func TestLearningGivesBack(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		primary.Lose()
		f := layertest.Fallback(t, primary, fallback.Options{Learn: time.Minute})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(10, time.Hour)), Key: "k"}
		if _, err := primary.Store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: c.Rule, Key: "k", Cost: 10}}, nil); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if v := layertest.Take(t, f.Store(), c); v.Allowed || v.Decisions[0].Source != headgate.SourceStore {
				t.Fatalf("got %+v", v)
			}
		}
		primary.Feel(layertest.Refuses)
		if _, err := f.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("without the store: %v", err)
		}
		primary.Feel(layertest.Well)
		if d, err := f.Store().Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil); err != nil || d[0].Allowed {
			t.Errorf("peek: %+v, %v", d, err)
		}
		primary.Store = memory.New()
		if got := layertest.Spend(t, f.Store(), c); got != 10 {
			t.Errorf("%d units left of 10", got)
		}
	})
}
