package load

import (
	"context"
	"sync"
	"time"
)

// run is a measurement in progress.
type run struct {
	client *Client
	shape  *Shape
	tally  *tally
	began  time.Time
	jobs   chan job
	done   chan sender // those whose workers have ended
}

// job is a request that is due.
type job struct {
	due    time.Duration
	target int32
	// waits says that no worker was free for it, and held until when none was free for
	// any before it.
	waits bool
	held  time.Duration
}

// Run sends requests in a shape and waits for their answers. When the context ends, it returns at
// once, with what was measured so far. The measurement ends early when an expectation can certainly
// not hold any more. The error is that of [Shape.Check].
func (c *Client) Run(ctx context.Context, shape Shape, expect []Expectation) (*Measurement, error) {
	if err := shape.Check(); err != nil {
		return nil, err
	}
	r := &run{
		client: c, shape: &shape, tally: newTally(&shape, c.groups, expect),
		jobs: make(chan job), done: make(chan sender, c.options.Connections), began: time.Now(),
	}
	before := c.usage()
	stop := r.tell()
	var workers sync.WaitGroup
	scheduled, paced := r.pace(ctx, &workers)
	close(r.jobs)
	workers.Wait()
	stop()
	close(r.done)
	for s := range r.done {
		c.idle = append(c.idle, s)
	}
	passed := time.Since(r.began)
	m := r.tally.measured(scheduled, paced)
	m.Rate, m.To = shape.Rate, shape.to()
	if len(shape.Recorded) > 0 {
		m.Rate, m.To = 0, 0
	}
	m.Interrupted = ctx.Err() != nil
	m.Stopped = !m.Interrupted && scheduled < shape.count()
	m.Sender, m.Service = c.usage().since(before, passed)
	m.judge(c.options.MaxLag)
	return m, nil
}

// pace hands requests to workers when they are due. It returns how many were due, and how long it
// took.
func (r *run) pace(ctx context.Context, workers *sync.WaitGroup) (scheduled int64, passed time.Duration) {
	o := &r.client.options
	started, held := 0, time.Duration(0)
	for i := range r.shape.count() {
		due := r.shape.due(i)
		if !r.sleep(ctx, due) || r.tally.lost() {
			return i, time.Since(r.began)
		}
		j := job{due: due, target: r.client.choose(r.shape, i), held: held}
		select {
		case r.jobs <- j:
			continue
		default:
		}
		if started < o.Connections {
			started++
			s := r.client.sender()
			workers.Go(func() { r.work(ctx, s, j) })
			continue
		}
		// Those in flight were due before, and so end before this one would time out.
		j.waits = true
		select {
		case r.jobs <- j:
			held = time.Since(r.began)
		case <-ctx.Done():
			return i, time.Since(r.began)
		}
	}
	// The last request is due somewhat before the time is over.
	r.sleep(ctx, r.shape.length())
	return r.shape.count(), min(time.Since(r.began), r.shape.length())
}

// sleep waits until something is due. It returns false if the context is done.
func (r *run) sleep(ctx context.Context, due time.Duration) bool {
	for {
		left := due - time.Since(r.began)
		if left <= 0 {
			return ctx.Err() == nil
		}
		// Timers may be late by a millisecond or two, so that the rest is slept exactly.
		const rest = 3 * time.Millisecond
		if left <= rest {
			r.client.options.nap(left)
			continue
		}
		timer := time.NewTimer(left - rest)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// work sends requests, beginning with one, until there are no more.
func (r *run) work(ctx context.Context, s sender, first job) {
	r.do(ctx, s, first, 0)
	free := time.Since(r.began)
	for j := range r.jobs {
		r.do(ctx, s, j, free)
		free = time.Since(r.began)
	}
	r.done <- s
}

// do sends a request over a connection that is free since then.
func (r *run) do(ctx context.Context, s sender, j job, free time.Duration) {
	sent := time.Since(r.began)
	if j.waits {
		j.held = free
	}
	o := one{due: j.due, target: j.target, waited: max(j.held-j.due, 0), lag: sent - max(j.due, j.held)}
	timeout := r.client.options.Timeout
	if sent-j.due < timeout {
		o.answer = s.send(ctx, r.client.options.Targets[j.target], r.began.Add(j.due+timeout))
	} else {
		o.unsent, o.answer = true, answer{kind: timedOut, code: noTime, class: noTime}
	}
	if o.latency = time.Since(r.began) - j.due; o.kind == timedOut {
		o.latency = max(o.latency, timeout)
	}
	r.tally.add(&o)
}

// tell calls Progress regularly with what was measured so far, until stop is called.
func (r *run) tell() (stop func()) {
	o := &r.client.options
	if o.Progress == nil || o.Every <= 0 {
		return func() {}
	}
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(o.Every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				passed := time.Since(r.began)
				m := r.tally.measured(0, passed)
				m.Rate, m.To = r.shape.Rate, r.shape.to()
				o.Progress(m)
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		ended.Wait()
	}
}
