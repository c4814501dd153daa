package rabbitmq_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/test/servers"
)

var blockedFor = flag.Duration("blocked", 2*time.Second, "how long the test keeps the broker short of memory")

// publishers are the tests of what publishes.
func publishers(t *testing.T, n *node) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, n *node)
	}{
		{"confirmed", confirmed},
		{"returned", returned},
		{"full queue", fullQueue},
		{"no such exchange", noSuchExchange},
		{"mismatch", mismatched},
		{"closed connections", closedConnections},
		{"silent broker", silent},
		{"closed", closed},
		{"invalid", invalid},
		{"memory alarm", memoryAlarm},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n.of(t)) })
	}
}

// confirmed: what was confirmed is in the queue, persistent, and says when it was sent.
func confirmed(t *testing.T, n *node) {
	both(t, "confirmed", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		n.queue(q)
		const count = 1000
		n.fill(q.Name, count)
		ch := n.channel()
		if got := depth(t, ch, q.Name); got != count {
			t.Fatalf("%d messages are in the queue, want %d", got, count)
		}
		d := n.read(q.Name, 1)[0]
		sent, ok := rabbitmq.Sent(&d)
		if !ok || time.Since(sent) > time.Hour || sent.Nanosecond() == 0 && d.Headers[rabbitmq.HeaderSent] == nil || d.MessageId == "" || d.DeliveryMode != amqp.Persistent {
			t.Errorf("%+v", d)
		}
	})
}

// returned: a message that no queue gets is told to whoever published it, and to nobody else.
func returned(t *testing.T, n *node) {
	queue := n.queue(rabbitmq.Queue{Name: "returned"})
	p := n.publisher(rabbitmq.PublisherConfig{})
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if i%2 == 0 {
				if err := p.Publish(servers.Bounded(t), to(queue, fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
				return
			}
			err := p.Publish(servers.Bounded(t), to("nobody", fmt.Sprint(i)))
			if e, ok := errors.AsType[*rabbitmq.ReturnedError](err); !ok || e.Key != "nobody" || e.Code != amqp.NoRoute {
				t.Errorf("error %v, want a ReturnedError", err)
			}
		})
	}
	all.Wait()
	m := to("nobody", "")
	m.Optional = true
	if err := p.Publish(servers.Bounded(t), m); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Returned != 100 || s.Confirmed != 101 {
		t.Errorf("%+v", s)
	}
}

// fullQueue: a queue that is full refuses, and loses nothing that it has confirmed.
func fullQueue(t *testing.T, n *node) {
	both(t, "full", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		q.MaxLength = 100
		n.queue(q)
		p := n.publisher(rabbitmq.PublisherConfig{MaxOutstanding: 10})
		confirmed := 0
		for i := range 400 {
			err := p.Publish(servers.Bounded(t), to(q.Name, fmt.Sprint(i)))
			if err == nil {
				confirmed++
				continue
			}
			if !errors.Is(err, rabbitmq.ErrRefused) {
				t.Fatal(err)
			}
		}
		got := make(map[string]bool)
		for _, d := range n.read(q.Name, confirmed) {
			got[string(d.Body)] = true
		}
		if confirmed < 100 || confirmed == 400 || len(got) != confirmed {
			t.Errorf("%d were confirmed, and %d of them are there", confirmed, len(got))
		}
		t.Logf("a queue of at most 100 has confirmed %d, one after the other", confirmed)
	})
}

// noSuchExchange: the broker closes the channel on one message, and only that one fails.
func noSuchExchange(t *testing.T, n *node) {
	queue := n.queue(rabbitmq.Queue{Name: "exchange"})
	p := n.publisher(rabbitmq.PublisherConfig{})
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			m := to(queue, fmt.Sprint(i))
			if i%100 == 50 {
				m.Exchange = "none"
			}
			err := p.Publish(servers.Bounded(t), m)
			if e, ok := errors.AsType[*rabbitmq.PublishError](err); ok != (m.Exchange != "") || ok && e.Cause.Code != amqp.NotFound || !ok && err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		})
	}
	all.Wait()
	bodies := make(map[string]bool)
	for _, d := range n.read(queue, 297) {
		bodies[string(d.Body)] = true
	}
	if s := p.Stats(); s.Confirmed != 297 {
		t.Errorf("%+v", s)
	}
	ch := n.channel()
	await(t, "all are there", func() bool {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			bodies[string(d.Body)] = true
		}
		return len(bodies) == 297
	})
}

// mismatched: whose context ends while the topology differs from the broker's is told what differs.
func mismatched(t *testing.T, n *node) {
	queue := n.queue(rabbitmq.Queue{Name: "mismatched", MaxLength: 10})
	told := make(chan error, 1)
	p := n.publisher(rabbitmq.PublisherConfig{
		Topology: rabbitmq.Topology{Queues: []rabbitmq.Queue{{Name: queue, MaxLength: 20}}},
		Hooks: rabbitmq.PublisherHooks{Error: func(err error) {
			select {
			case told <- err:
			default:
			}
		}},
	})
	select {
	case err := <-told:
		if err == nil {
			t.Fatal("nothing is wrong")
		}
	case <-servers.Bounded(t).Done():
		t.Fatal("nothing was told")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := p.Publish(ctx, to(queue, ""))
	e, ok := errors.AsType[*rabbitmq.MismatchError](err)
	if !ok || e.Kind != "queue" || e.Name != queue || e.Property != "x-max-length" || e.Described != "'20'" || e.Found != "'10'" || !errors.Is(err, rabbitmq.ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want ErrUnsent, the deadline, and what differs", err)
	}
}

// closedConnections: a publisher whose connection breaks again and again confirms all, and
// what it has confirmed is there. Twice has the same id.
func closedConnections(t *testing.T, n *node) {
	queue := n.queue(rabbitmq.Queue{Name: "broken"})
	p := n.publisher(rabbitmq.PublisherConfig{MaxOutstanding: 50})
	const workers, each = 20, 50
	var all sync.WaitGroup
	var done atomic.Int32
	for w := range workers {
		all.Go(func() {
			for i := range each {
				if err := p.Publish(servers.Bounded(t), to(queue, fmt.Sprint(w, " ", i))); err != nil {
					t.Error(err)
				}
				done.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	for round := int32(1); round <= 2; round++ {
		await(t, "a part is done", func() bool { return done.Load() >= round*workers*each/4 })
		n.Eval(`rabbit_networking:close_all_connections("a test").`)
	}
	all.Wait()
	s := p.Stats()
	bodies, ids := make(map[string]bool), make(map[string]bool)
	ch := n.channel()
	for _, d := range n.read(queue, depth(t, ch, queue)) {
		bodies[string(d.Body)], ids[d.MessageId] = true, true
	}
	if len(bodies) != workers*each || len(ids) != workers*each || s.Confirmed != workers*each {
		t.Errorf("%d messages and %d ids are there; %+v", len(bodies), len(ids), s)
	}
	t.Logf("%+v", s)
}

// silent: a broker that does not answer is left, and what it has not confirmed is sent again
// when it does. Calls return by their contexts meanwhile.
func silent(t *testing.T, n *node) {
	queue := n.queue(rabbitmq.Queue{Name: "silent"})
	left := make(chan error, 100)
	p := n.publisher(rabbitmq.PublisherConfig{ConfirmTimeout: 200 * time.Millisecond, Hooks: rabbitmq.PublisherHooks{
		Error: func(err error) { left <- err },
	}})
	if err := p.Publish(servers.Bounded(t), to(queue, "before")); err != nil {
		t.Fatal(err)
	}
	// A confirmation of the first message that was late is over.
	for len(left) > 0 {
		t.Log(<-left)
	}
	n.Pause()
	done := make(chan error, 1)
	go func() { done <- p.Publish(servers.Bounded(t), to(queue, "during")) }()
	select {
	case err := <-left:
		t.Log(err)
	case <-time.After(within):
		t.Error("the publisher waits for a broker that does not answer")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Publish(ctx, to(queue, "never")); !errors.Is(err, rabbitmq.ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want ErrUnsent and the context's", err)
	}
	n.Resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, d := range n.read(queue, depth(t, n.channel(), queue)) {
		if string(d.Body) == "never" {
			t.Error("a message is there that was said not to be sent")
		}
	}
	if s := p.Stats(); s.Resent == 0 || s.Confirmed != 2 {
		t.Errorf("%+v", s)
	}
}

// closed: a publisher that is closed takes nothing, and leaves no call behind.
func closed(t *testing.T, n *node) {
	queue := n.queue(rabbitmq.Queue{Name: "shut"})
	p := n.publisher(rabbitmq.PublisherConfig{MaxOutstanding: 5})
	var all sync.WaitGroup
	var taken atomic.Int32
	for i := range 100 {
		all.Go(func() {
			switch err := p.Publish(servers.Bounded(t), to(queue, fmt.Sprint(i))); {
			case err == nil:
				taken.Add(1)
			case !errors.Is(err, rabbitmq.ErrClosed):
				t.Error(err)
			}
		})
	}
	if err := p.Close(servers.Bounded(t)); err != nil {
		t.Error(err)
	}
	all.Wait()
	if got := depth(t, n.channel(), queue); got != int(taken.Load()) {
		t.Errorf("%d messages are there, and %d were confirmed", got, taken.Load())
	}
	if err := p.Publish(servers.Bounded(t), to(queue, "")); !errors.Is(err, rabbitmq.ErrClosed) || !errors.Is(err, rabbitmq.ErrUnsent) {
		t.Errorf("error %v, want ErrUnsent and ErrClosed", err)
	}
}

// invalid: what would break the connection for others is refused before it is sent.
func invalid(t *testing.T, n *node) {
	p := n.publisher(rabbitmq.PublisherConfig{})
	for name, m := range map[string]rabbitmq.Message{
		"key":        {Key: strings.Repeat("x", 256)},
		"headers":    {Publishing: amqp.Publishing{Headers: amqp.Table{"x": struct{}{}}}},
		"message id": {Publishing: amqp.Publishing{MessageId: strings.Repeat("x", 256)}},
	} {
		if err := p.Publish(servers.Bounded(t), m); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: error %v, want an InvalidError", name, err)
		}
	}
	m := to("nobody", "")
	m.Expiration = "soon"
	if err := p.Publish(servers.Bounded(t), m); err == nil {
		t.Error("an expiration that is no number was taken")
	} else if _, ok := errors.AsType[*rabbitmq.PublishError](err); !ok {
		t.Error(err)
	}
}

// memoryAlarm has the broker run short of memory, as it sees it: publishers return by
// their contexts, hold no more than they may, and go on at once when it is over. Consumers
// go on all the time.
func memoryAlarm(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "alarm"}
	n.queue(q)
	blocked, unblocked := make(chan string, 10), make(chan time.Time, 10)
	const most = 100
	p := n.publisher(rabbitmq.PublisherConfig{MaxOutstanding: most, Hooks: rabbitmq.PublisherHooks{
		Blocked:   func(reason string) { blocked <- reason },
		Unblocked: func() { unblocked <- time.Now() },
	}})
	var mu sync.Mutex
	sure := make(map[string]bool) // what was confirmed
	publish := func(ctx context.Context, body string) error {
		// The body is large, so that the socket's buffers fill.
		err := p.Publish(ctx, to(q.Name, body+strings.Repeat(" ", 64<<10)))
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			sure[body] = true
		}
		return err
	}
	for i := range 100 {
		if err := publish(servers.Bounded(t), fmt.Sprint("before ", i)); err != nil {
			t.Fatal(err)
		}
	}
	var s seen
	c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error {
		d.Body = []byte(strings.TrimSpace(string(d.Body)))
		s.add(d)
		return nil
	}})
	await(t, "the first are handled", func() bool { return s.distinct() == 100 && c.Stats().Held == 0 })

	n.Eval(`vm_memory_monitor:set_vm_memory_high_watermark({absolute, "1MB"}).`)
	var all sync.WaitGroup
	stop := make(chan struct{})
	var expired, unsent atomic.Int32
	var late atomic.Int64 // the longest that a call took beyond its context
	for w := range 50 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				err := publish(ctx, fmt.Sprint("during ", w, " ", i))
				if deadline, _ := ctx.Deadline(); err != nil {
					late.Store(max(late.Load(), int64(time.Since(deadline))))
				}
				cancel()
				switch {
				case err == nil:
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				case errors.Is(err, rabbitmq.ErrUnsent):
					unsent.Add(1)
					expired.Add(1)
				default:
					expired.Add(1)
				}
			}
		})
	}
	select {
	case reason := <-blocked:
		t.Logf("blocked: %q", reason)
	case <-time.After(within):
		t.Fatal("the publisher was not told that it is blocked")
	}
	ended := time.Now().Add(*blockedFor)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, growth := heap(), uint64(0)
	for time.Now().Before(ended) {
		time.Sleep(time.Second)
		if now := heap(); now > before {
			growth = max(growth, now-before)
		}
		if s := p.Stats(); s.Outstanding > most || !s.Blocked {
			t.Errorf("%+v", s)
		}
	}
	await(t, "calls return by their contexts", func() bool { return expired.Load() > 100 })
	n.Eval(`vm_memory_monitor:set_vm_memory_high_watermark(0.9).`)
	var free time.Time
	select {
	case free = <-unblocked:
	case <-time.After(within):
		t.Fatal("the publisher was not told that it is unblocked")
	}
	if err := publish(servers.Bounded(t), "after"); err != nil {
		t.Fatal(err)
	}
	t.Logf("blocked for %v: %d calls returned by their contexts, %d of them with nothing sent, %v late at most; the heap grew by %d KiB; a message was confirmed %v after",
		*blockedFor, expired.Load(), unsent.Load(), time.Duration(late.Load()).Round(time.Millisecond), growth>>10, time.Since(free).Round(time.Millisecond))
	close(stop)
	all.Wait()
	if err := p.Close(servers.Bounded(t)); err != nil {
		t.Error(err)
	}
	await(t, "what was confirmed is handled", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for body := range sure {
			if s.bodies[body] == 0 {
				return false
			}
		}
		return true
	})
	if limit := uint64(4 * most * 64 << 10); growth > limit {
		t.Errorf("the heap grew by %d bytes while %d messages of 64 KiB were outstanding at most", growth, most)
	}
	if c.Stats().Connects != 1 {
		t.Errorf("the consumer has connected %d times", c.Stats().Connects)
	}
}

// brokerKilled kills the broker in the middle of the work and starts it again: nothing
// that was confirmed is lost, and both sides go on by themselves.
func brokerKilled(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "restart", DeadLetter: "restart.dead"}
	var s seen
	c := n.run(rabbitmq.Config{
		Queue: q, DeadLetter: rabbitmq.Queue{Name: "restart.dead"},
		Retry: rabbitmq.Retry{Tiers: []rabbitmq.Tier{{Delay: 100 * time.Millisecond}}},
		Handle: func(ctx context.Context, d *amqp.Delivery) error {
			time.Sleep(5 * time.Millisecond)
			if s.add(d); strings.HasSuffix(string(d.Body), "0") {
				return errPartner
			}
			return nil
		},
	})
	await(t, "the queue is there", func() bool { return c.Stats().Prefetch > 0 })
	// RabbitMQ 3.10 writes down which quorum queues there are only after a while in which none
	// was made: one that is younger is lost with the process, whatever it has confirmed. It is told
	// to do that now.
	n.Eval(`[ok = dets:sync(Table) || Table <- dets:all()].`)
	p := n.publisher(rabbitmq.PublisherConfig{MaxOutstanding: 20})
	const workers, each = 10, 200
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				if err := p.Publish(ctx, to(q.Name, fmt.Sprint(w, " ", i))); err != nil {
					t.Error(err)
				}
				cancel()
				time.Sleep(time.Millisecond)
			}
		})
	}
	await(t, "a part is handled", func() bool { return s.distinct() > workers*each/10 })
	n.Kill()
	before := s.distinct()
	n.Restart()
	all.Wait()
	await(t, "all are handled", func() bool { return s.distinct() == workers*each })
	await(t, "all are done", func() bool { return c.Stats().Held == 0 && c.Stats().Ready == 0 })
	dead := make(map[string]bool)
	for _, d := range n.read("restart.dead", workers*each/10) {
		dead[string(d.Body)] = true
	}
	t.Logf("%d were handled before the broker was killed; then consumer %+v, publisher %+v", before, c.Stats().Counts, p.Stats())
	ch := n.channel()
	for len(dead) < workers*each/10 { // some may be there twice
		d, ok, err := ch.Get("restart.dead", true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			t.Fatalf("%d of %d dead letters are there", len(dead), workers*each/10)
		}
		dead[string(d.Body)] = true
	}
}
