package outagebench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often the cost of the layer is measured, and Slice how long each
	// measurement lasts.
	Rounds int
	Slice  time.Duration
	// Callers is how many ask at the same time, Rate how many requests a second they
	// make of a store that hangs, and Keys for how many keys.
	Callers, Rate, Keys int
	// Hang is how long the store hangs for the way that has most to keep, and
	// HangOthers how long it does so for the others.
	Hang, HangOthers time.Duration
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about eleven minutes, ten of which the
// store hangs.
func Full() Plan {
	return Plan{Rounds: 25, Slice: 250 * time.Millisecond, Callers: 64, Rate: 2000, Keys: 10_000, Hang: 10 * time.Minute, HangOthers: 20 * time.Second}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan {
	return Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 64, Rate: 2000, Keys: 1000, Hang: 3 * time.Second, HangOthers: time.Second}
}

func (p Plan) progress(format string, args ...any) {
	if p.Progress != nil {
		p.Progress(format, args...)
	}
}

// way is a way to ask the server.
type way struct {
	name  string
	store headgate.Store
	close func()
}

// nodes is among how many the limits are shared.
const nodes = 4

// The ways, in the order of the tables.
var ways = []struct {
	name string
	bare bool
	mode headgate.OnError
}{
	{"the store alone", true, 0},
	{"with a fallback, rules that deny", false, headgate.OnErrorDeny},
	{"with a fallback, rules that count locally", false, headgate.OnErrorLocal},
}

// open makes one of the ways.
func open(ctx context.Context, s *redisbench.Server, i int, timeout time.Duration) (*way, error) {
	var store *redis.Store
	var err error
	// With a short deadline the first question may come to nothing on a machine that is busy.
	for range 20 {
		if store, err = redis.Open(ctx, "redis://"+s.Addr, redis.WithTimeout(timeout), redis.WithPrefix(fmt.Sprintf("bench%d:", i))); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	w := &way{ways[i].name, store, store.Close}
	if ways[i].bare {
		return w, nil
	}
	f, err := fallback.New(store, fallback.Options{Local: memory.New(), Default: ways[i].mode, Nodes: nodes})
	if err != nil {
		store.Close()
		return nil, err
	}
	w.store, w.close = f.Store(), func() {
		_ = f.Close(ctx) // never fails
		store.Close()
	}
	return w, nil
}

// rule admits whatever is asked, also where only a share of it is.
var rule = headgate.MustRule("outage", headgate.PerSecond(nodes*1_000_000))

// Outcome is what a run has measured.
type Outcome struct {
	Plan    Plan
	Version string // of the server
	Well    []Well
	Hangs   []Hang
}

// Run measures both on a server that nobody else uses.
func Run(ctx context.Context, s *redisbench.Server, plan Plan) (*Outcome, error) {
	o := &Outcome{Plan: plan, Version: s.Version}
	var err error
	if o.Well, err = well(ctx, s, plan); err != nil {
		return nil, fmt.Errorf("a store that is well: %w", err)
	}
	for i := range ways {
		h, err := hang(ctx, s, plan, i)
		if err != nil {
			return nil, fmt.Errorf("a store that hangs, %s: %w", ways[i].name, err)
		}
		o.Hangs = append(o.Hangs, h)
	}
	return o, nil
}

// errWrong says that an answer is not as expected: its time is worth nothing.
var errWrong = errors.New("outagebench: a request was denied that fits")
