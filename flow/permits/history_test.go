package permits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/bubbletest"
)

// oracle is one key's permits for one tenant, in the slowest and most obvious way. Its
// state is a list of requests in the order in which they came.
type oracle struct {
	limit, queue int64
	maxWait      time.Duration
	requests     []*request
}

// request is one that the gate was asked and has not forgotten.
type request struct {
	flow.Request
	came   time.Time
	state  string // "waits", "holds", "done", or why it was refused
	passed int64
	asked  *asked
	cancel context.CancelFunc
}

func (o *oracle) with(state string) []*request {
	var with []*request
	for _, r := range o.requests {
		if r.state == state {
			with = append(with, r)
		}
	}
	return with
}

// limitOf is the limit that a request goes by.
func (o *oracle) limitOf(r *request) int64 {
	if r.Limit != 0 {
		return r.Limit
	}
	return o.limit
}

// room is how many units are free for a request.
func (o *oracle) room(asks *request) int64 {
	room := o.limitOf(asks)
	for _, r := range o.with("holds") {
		room -= r.Cost
	}
	return room
}

// serve lets in who may go: the first of the best class, or of a lower class if it does
// not fit and has not been passed by too much.
func (o *oracle) serve() {
	for {
		var blocked []*request
		var next *request
		for rank := range flow.Classes {
			i := slices.IndexFunc(o.requests, func(r *request) bool {
				return r.state == "waits" && r.Class.Rank() == rank
			})
			if i < 0 {
				continue
			}
			if o.requests[i].Cost <= o.room(o.requests[i]) {
				next = o.requests[i]
				break
			}
			blocked = append(blocked, o.requests[i])
		}
		if next == nil || slices.ContainsFunc(blocked, func(r *request) bool { return r.passed+next.Cost > o.limitOf(r) }) {
			return
		}
		for _, r := range blocked {
			r.passed += next.Cost
		}
		next.state = "holds"
	}
}

func (o *oracle) acquire(r *request) {
	o.requests = append(o.requests, r)
	waiting := o.with("waits")
	first := !slices.ContainsFunc(waiting, func(w *request) bool { return w.Class >= r.Class })
	switch {
	case r.Cost > o.limitOf(r):
		r.state = flow.ReasonTooLarge.String()
	case r.Cost <= o.room(r) && first:
		r.state = "holds"
	case int64(len(waiting)) == o.queue:
		least := slices.MinFunc(waiting, func(a, b *request) int { return int(a.Class) - int(b.Class) }).Class
		if least >= r.Class {
			r.state = flow.ReasonQueueFull.String()
			return
		}
		for _, w := range slices.Backward(waiting) {
			if w.Class == least {
				w.state = flow.ReasonDisplaced.String()
				break
			}
		}
		fallthrough
	default:
		r.state = "waits"
		o.serve()
	}
}

func (o *oracle) resize(limit int64) {
	o.limit = limit
	for _, r := range o.with("waits") {
		if r.Cost > o.limitOf(r) {
			r.state = flow.ReasonTooLarge.String()
		}
	}
	o.serve()
}

// expire refuses who has waited for too long.
func (o *oracle) expire(now time.Time) {
	for _, r := range o.with("waits") {
		if r.state == "waits" && now.Sub(r.came) >= o.maxWait {
			r.state = flow.ReasonWaited.String()
			o.serve()
		}
	}
}

// outcome is what the gate has decided for the request.
func (r *request) outcome(t *testing.T) string {
	switch {
	case !r.asked.ended():
		return "waits"
	case r.asked.err() == nil && r.asked.permit().Held():
		return "holds"
	case r.asked.err() == nil:
		return "done"
	case r.state == "canceled":
		return "canceled"
	}
	return reasonOf(t, r.asked.err()).String()
}

func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		bubbletest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			o := &oracle{limit: 1 + random.Int64N(5), queue: 1 + random.Int64N(6), maxWait: 100 * time.Millisecond}
			g := mustNew(t, Config{
				Limit: o.limit, Shared: seed%2 == 0, Queue: int(o.queue), MaxWait: o.maxWait,
			})
			var history []string
			for range 120 {
				// No two requests come, or have waited too long, at the same instant.
				time.Sleep(time.Microsecond)
				o.expire(time.Now())
				bubbletest.Wait()
				holding, waiting := o.with("holds"), o.with("waits")
				switch op := random.IntN(12); {
				case op < 5:
					ctx, cancel := context.WithCancel(t.Context())
					r := &request{came: time.Now(), cancel: cancel, Request: flow.Request{
						Key: "k", Cost: 1 + random.Int64N(4), Class: flow.ClassOfRank(random.IntN(flow.Classes)),
					}}
					if seed%2 != 0 && random.IntN(2) == 0 {
						r.Limit = 1 + random.Int64N(6)
					}
					history = append(history, fmt.Sprintf("acquire %d of %d %v", r.Cost, r.Limit, r.Class))
					o.acquire(r)
					r.asked = ask(ctx, g, r.Request)
				case op < 8 && len(holding) > 0:
					r := holding[random.IntN(len(holding))]
					history = append(history, fmt.Sprintf("release %d", r.Cost))
					r.asked.permit().Done(flow.Success)
					r.state = "done"
					o.serve()
				case op < 9 && len(waiting) > 0:
					r := waiting[random.IntN(len(waiting))]
					history = append(history, fmt.Sprintf("cancel %d %v", r.Cost, r.Class))
					r.cancel()
					r.state = "canceled"
					o.serve()
				case op < 10:
					limit := 1 + random.Int64N(6)
					history = append(history, fmt.Sprintf("resize %d", limit))
					if err := g.SetLimit(limit); err != nil {
						t.Fatal(err)
					}
					o.resize(limit)
				default:
					d := time.Duration(random.IntN(60)) * time.Millisecond
					history = append(history, fmt.Sprintf("sleep %v", d))
					// In steps, so that those who have waited too long go one after another.
					for range d / time.Millisecond {
						time.Sleep(time.Millisecond)
						o.expire(time.Now())
						bubbletest.Wait()
					}
				}
				bubbletest.Wait()
				for i, r := range o.requests {
					if got := r.outcome(t); got != r.state {
						t.Fatalf("seed %d: request %d (%d %v): %s, want %s, after %q",
							seed, i, r.Cost, r.Class, got, r.state, history)
					}
				}
			}
			for _, r := range o.requests {
				r.cancel()
				bubbletest.Wait()
				r.asked.permit().Done(flow.Ignore)
			}
			bubbletest.Wait()
			if s := g.Stats(); s.InUse != 0 || s.Waiting != 0 || s.Keys != 0 {
				t.Fatalf("seed %d: at the end %+v", seed, s)
			}
		})
	}
}
