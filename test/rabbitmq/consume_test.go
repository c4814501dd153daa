package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/test/servers"
)

// TestBroker has one broker for all tests, because a broker takes seven seconds of a processor to
// start. Each test has queues of its own.
func TestBroker(t *testing.T) {
	n := start(t)
	// The broker recovers each queue after it was killed: it has few now.
	t.Run("killed", func(t *testing.T) { brokerKilled(t, n.of(t)) })
	t.Run("consumer", func(t *testing.T) { consumers(t, n.of(t)) })
	t.Run("publisher", func(t *testing.T) { publishers(t, n.of(t)) })
}

// consumers are the tests of what consumes.
func consumers(t *testing.T, n *node) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, n *node)
	}{
		{"all is handled", handled},
		{"order of acks", ackOrder},
		{"retry tiers", retryTiers},
		{"in place", inPlace},
		{"panics", panics},
		{"rejected", rejected},
		{"settled by us", settledByUs},
		{"poison", poison},
		{"storm", storm},
		{"closed channel", closedChannel},
		{"queue deleted", queueDeleted},
		{"tier deleted", tierDeleted},
		{"drain", drain},
		{"stuck handler", stuckHandler},
		{"hold", hold},
		{"prefetch grows", prefetchGrows},
		{"prefetch shrinks", prefetchShrinks},
		{"rate", rate},
		{"killed", killed},
		{"topology", topology},
		{"example", example},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n.of(t)) })
	}
}

var errPartner = errors.New("the partner is down")

// both runs a test with each type of queue.
func both(t *testing.T, name string, test func(t *testing.T, q rabbitmq.Queue)) {
	for typ, kind := range map[rabbitmq.Type]string{rabbitmq.Quorum: "quorum", rabbitmq.Classic: "classic"} {
		t.Run(kind, func(t *testing.T) { test(t, rabbitmq.Queue{Name: name + "-" + kind, Type: typ}) })
	}
}

func handled(t *testing.T, n *node) {
	both(t, "handled", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		n.queue(q)
		const count = 2000
		n.fill(q.Name, count)
		var s seen
		c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error {
			if sent, ok := rabbitmq.Sent(d); !ok || time.Since(sent) > time.Hour {
				return fmt.Errorf("the message was sent at %v", sent)
			}
			s.add(d)
			return nil
		}})
		await(t, "all messages are done", func() bool { return s.distinct() == count && c.Stats().Held == 0 })
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		if ready := depth(t, n.channel(), q.Name); ready != 0 || s.all() != count {
			t.Errorf("%d messages are left and %d were handled, want 0 and %d", ready, s.all(), count)
		}
	})
}

// ackOrder: what is done first is acknowledged first, whatever came first.
func ackOrder(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "acks"}
	n.queue(q)
	n.fill(q.Name, 2)
	ch := n.channel()
	release := make(chan struct{})
	var s seen
	c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error {
		if string(d.Body) == "0" {
			<-release
		}
		s.add(d)
		return nil
	}})
	await(t, "one is settled", func() bool { return s.all() == 1 && c.Stats().Held == 1 })
	// The one that is done must not come again when the other one does.
	if err := ch.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	close(release)
	await(t, "both are settled", func() bool { return c.Stats().Held == 0 })
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	if n := s.all() + depth(t, ch, q.Name); n != 2 {
		t.Errorf("%d messages were handled or are left, want 2", n)
	}
}

// retryTiers: a message that fails passes the tiers, no sooner than their delays, and ends
// as a dead letter that says why, where from, and how often.
func retryTiers(t *testing.T, n *node) {
	both(t, "tiers", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		exchange := "shop-" + q.Name
		tiers := []rabbitmq.Tier{{Delay: 300 * time.Millisecond}, {Delay: 700 * time.Millisecond}}
		var mu sync.Mutex
		var tried []time.Time
		c := n.run(rabbitmq.Config{
			Queue:      q,
			Exchanges:  []rabbitmq.Exchange{{Name: exchange, Kind: "topic"}},
			Bindings:   []rabbitmq.Binding{{Exchange: exchange, Key: "orders.#", Queue: q.Name}},
			DeadLetter: rabbitmq.Queue{Name: q.Name + ".dead"},
			Retry:      rabbitmq.Retry{InPlace: 1, Backoff: time.Millisecond, Tiers: tiers},
			Handle: func(_ context.Context, d *amqp.Delivery) error {
				if d.Exchange != exchange || d.RoutingKey != "orders.new" || d.UserId != "" && d.UserId != "guest" {
					t.Errorf("the message is from %q with the key %q", d.Exchange, d.RoutingKey)
				}
				mu.Lock()
				defer mu.Unlock()
				tried = append(tried, time.Now())
				return errPartner
			},
		})
		await(t, "the consumer is there", func() bool { return c.Stats().Prefetch > 0 })
		p := n.publisher(rabbitmq.PublisherConfig{})
		if err := p.Publish(servers.Bounded(t), rabbitmq.Message{Exchange: exchange, Key: "orders.new", Publishing: amqp.Publishing{
			Body: []byte("17"), MessageId: "m17", ContentType: "text/plain", UserId: "guest", Expiration: "600000",
			Headers: amqp.Table{"tenant": "acme", "CC": []any{"elsewhere"}},
		}}); err != nil {
			t.Fatal(err)
		}
		dead := n.read(q.Name+".dead", 1)[0]
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		o, ok := rabbitmq.OriginOf(dead.Headers)
		if !ok || o.Queue != q.Name || o.Exchange != exchange || o.Key != "orders.new" || o.Reason != errPartner.Error() ||
			o.Attempts != 4 || o.Tier != 2 || !o.Due.IsZero() || time.Since(o.Failed) > time.Hour {
			t.Errorf("the origin of the dead letter is %+v, %v", o, ok)
		}
		if dead.MessageId != "m17" || dead.ContentType != "text/plain" || string(dead.Body) != "17" || dead.Headers["tenant"] != "acme" {
			t.Errorf("the dead letter is %+v", dead)
		}
		if len(tried) != 4 {
			t.Fatalf("it was tried %d times, want 4", len(tried))
		}
		for i, tier := range tiers {
			if waited := tried[i+2].Sub(tried[i+1]); waited < tier.Delay {
				t.Errorf("it came from tier %d after %v, want %v at least", i+1, waited, tier.Delay)
			}
		}
		if s := c.Stats(); s.Handled != 4 || s.Failed != 4 || s.Retried != 1 || s.Delayed != 2 || s.DeadLettered != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func inPlace(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "inplace"}
	n.queue(q)
	n.fill(q.Name, 50)
	var s seen
	c := n.run(rabbitmq.Config{
		Queue: q, Retry: rabbitmq.Retry{InPlace: 3, Backoff: time.Millisecond},
		Handle: func(_ context.Context, d *amqp.Delivery) error {
			if s.add(d) < 3 {
				return errPartner
			}
			return nil
		},
	})
	await(t, "all are done", func() bool { st := c.Stats(); return s.all() == 150 && st.Held == 0 })
	if st := c.Stats(); st.Retried != 100 || st.Redelivered != 0 || st.Delivered != 50 {
		t.Errorf("%+v", st)
	}
}

// panics: a handler that panics, or ends its goroutine, costs its message and nothing else.
func panics(t *testing.T, n *node) {
	n.queue(rabbitmq.Queue{Name: "panics.dead"})
	q := rabbitmq.Queue{Name: "panics", DeadLetter: "panics.dead"}
	n.queue(q)
	n.fill(q.Name, 20)
	c := n.run(rabbitmq.Config{
		Queue: q, Workers: 2, DeadLetter: rabbitmq.Queue{Name: "panics.dead"}, Retry: rabbitmq.Retry{InPlace: 5},
		Handle: func(_ context.Context, d *amqp.Delivery) error {
			switch string(d.Body) {
			case "3":
				panic("three")
			case "4":
				runtime.Goexit()
			}
			return nil
		},
	})
	reasons := make(map[string]string)
	for _, d := range n.read("panics.dead", 2) {
		o, _ := rabbitmq.OriginOf(d.Headers)
		reasons[string(d.Body)] = o.Reason
	}
	if reasons["3"] != "the handler panicked: three" || reasons["4"] != "the handler ended its goroutine" {
		t.Errorf("%v", reasons)
	}
	await(t, "all are done", func() bool { return c.Stats().Handled == 20 && c.Stats().Held == 0 })
}

// rejected: the broker moves what is rejected, and says so.
func rejected(t *testing.T, n *node) {
	n.queue(rabbitmq.Queue{Name: "rejected.dead"})
	q := rabbitmq.Queue{Name: "rejected", DeadLetter: "rejected.dead"}
	n.queue(q)
	n.fill(q.Name, 1)
	c := n.run(rabbitmq.Config{
		Queue: q, Exhausted: rabbitmq.Reject,
		Handle: func(context.Context, *amqp.Delivery) error { return errPartner },
	})
	d := n.read("rejected.dead", 1)[0]
	if o, ok := rabbitmq.OriginOf(d.Headers); !ok || o.Queue != q.Name || o.Reason != "rejected" || o.Failed.IsZero() || o.Key != q.Name {
		t.Errorf("%+v, %v", o, ok)
	}
	if s := c.Stats(); s.Rejected != 1 {
		t.Errorf("%+v", s)
	}
}

func settledByUs(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "settled"}
	n.queue(q)
	n.fill(q.Name, 3)
	var wrong atomic.Int32
	c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error {
		for _, err := range []error{d.Ack(false), d.Nack(false, true), d.Reject(false)} {
			if !errors.Is(err, rabbitmq.ErrSettled) {
				wrong.Add(1)
			}
		}
		return nil
	}})
	await(t, "all are done", func() bool { return c.Stats().Handled == 3 && c.Stats().Held == 0 })
	if wrong.Load() != 0 || c.Stats().Connects != 1 {
		t.Errorf("%d settlements passed, %+v", wrong.Load(), c.Stats())
	}
}

// storm: a thousand messages of which none can be handled do not come again and again.
func storm(t *testing.T, n *node) {
	n.queue(rabbitmq.Queue{Name: "storm.dead"})
	q := rabbitmq.Queue{Name: "storm", DeadLetter: "storm.dead"}
	n.queue(q)
	const count = 1000
	n.fill(q.Name, count)
	c := n.run(rabbitmq.Config{
		Queue: q, DeadLetter: rabbitmq.Queue{Name: "storm.dead"},
		Retry:  rabbitmq.Retry{Tiers: []rabbitmq.Tier{{Delay: 500 * time.Millisecond}}},
		Handle: func(context.Context, *amqp.Delivery) error { return errPartner },
	})
	ch := n.channel()
	await(t, "all are dead letters", func() bool { return c.Stats().DeadLettered >= count && c.Stats().Held == 0 })
	s := c.Stats()
	// The broker may mark a message as delivered before that never arrived: what was on its way
	// when a subscription ended.
	if s.Delivered != 2*count || s.Handled != 2*count {
		t.Errorf("%d messages that cannot be handled were delivered %d times (%d again) and tried %d times, want 2 each: %+v",
			count, s.Delivered, s.Redelivered, s.Handled, s)
	}
	await(t, "the dead letters are there", func() bool { return depth(t, ch, "storm.dead") == count })
}

// rate: messages of a partner who takes 50 a second wait, and others do not. The last one that
// waits is kept back until the others are done.
func rate(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "rate"}
	n.queue(q)
	const count, partners = 200, 2
	n.fill(q.Name, count)
	gate := &every{wait: 20 * time.Millisecond}
	var slow, fast atomic.Int32
	gate.may = func(admitted int) bool { return admitted < count/partners-1 || fast.Load() == count/partners }
	c := n.run(rabbitmq.Config{
		Queue: q, Gate: gate,
		Request: func(d *amqp.Delivery) flow.Request {
			if d.Body[len(d.Body)-1]%partners == 0 {
				return flow.Request{Key: "slow"}
			}
			return flow.Request{Key: "fast"}
		},
		Handle: func(_ context.Context, d *amqp.Delivery) error {
			if d.Body[len(d.Body)-1]%partners == 0 {
				slow.Add(1)
				return nil
			}
			fast.Add(1)
			return nil
		},
	})
	await(t, "all are done", func() bool { return slow.Load()+fast.Load() == count && c.Stats().Held == 0 })
	if c.Stats().Refused == 0 {
		t.Error("none was refused")
	}
}

// every lets one request with the key "slow" in each so often, and all others.
type every struct {
	wait time.Duration
	may  func(admitted int) bool // whether one more is let in; nil for always

	mu       sync.Mutex
	next     time.Time
	admitted int
}

func (g *every) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.TryAcquire(ctx, r)
}

func (g *every) TryAcquire(_ context.Context, r flow.Request) (flow.Permit, error) {
	if r.Key != "slow" {
		return flow.Permit{}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.may != nil && !g.may(g.admitted) {
		g.next = now.Add(g.wait)
	}
	if now.Before(g.next) {
		return flow.Permit{}, &flow.Rejection{Gate: "every", Reason: flow.ReasonRate, RetryAfter: g.next.Sub(now), Retry: true}
	}
	g.next = now.Add(g.wait)
	g.admitted++
	return flow.Permit{}, nil
}

// topology: what is not as it was described is told with both sides.
func topology(t *testing.T, n *node) {
	handle := func(context.Context, *amqp.Delivery) error { return nil }
	q := rabbitmq.Queue{Name: "shape", MaxLength: 10, TTL: time.Minute}
	n.queue(q)
	for _, test := range []struct {
		name                       string
		queue                      rabbitmq.Queue
		setup                      rabbitmq.Setup
		missing                    bool
		property, described, found string
	}{
		{name: "as it is", queue: q},
		{name: "as it is, checked", queue: q, setup: rabbitmq.Check},
		{name: "longer", queue: rabbitmq.Queue{Name: "shape", MaxLength: 20, TTL: time.Minute}, property: "x-max-length", described: "20", found: "10"},
		{name: "longer, checked", queue: rabbitmq.Queue{Name: "shape", MaxLength: 20, TTL: time.Minute}, setup: rabbitmq.Check, property: "x-max-length", described: "20", found: "10"},
		{name: "longer, not looked at", queue: rabbitmq.Queue{Name: "shape", MaxLength: 20}, setup: rabbitmq.Exists},
		{name: "no bound", queue: rabbitmq.Queue{Name: "shape", TTL: time.Minute}, property: "x-max-length", described: "none", found: "10"},
		{name: "another type", queue: rabbitmq.Queue{Name: "shape", Type: rabbitmq.Classic, MaxLength: 10, TTL: time.Minute}, property: "x-queue-type", described: "classic", found: "quorum"},
		{name: "missing", queue: rabbitmq.Queue{Name: "none"}, setup: rabbitmq.Check, missing: true},
		{name: "missing, not looked at", queue: rabbitmq.Queue{Name: "none"}, setup: rabbitmq.Exists, missing: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := rabbitmq.New(rabbitmq.Config{Broker: n.broker(), Queue: test.queue, Setup: test.setup, Handle: handle, Exhausted: rabbitmq.Block})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { // what is right runs until it is stopped
				await(t, "the consumer runs, or not", func() bool { return c.Stats().Prefetch > 0 || ctx.Err() != nil })
				cancel()
			}()
			err = c.Run(ctx)
			mismatch, ok := errors.AsType[*rabbitmq.MismatchError](err)
			if want := test.missing || test.property != ""; ok != want {
				t.Fatalf("error %v", err)
			} else if !want {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if mismatch.Kind != "queue" || mismatch.Name != test.queue.Name || mismatch.Missing != test.missing || mismatch.Property != test.property ||
				!strings.Contains(mismatch.Described, test.described) || !strings.Contains(mismatch.Found, test.found) || mismatch.Cause == nil {
				t.Errorf("%+v", mismatch)
			}
			t.Log(err)
		})
	}
}

func slowly(*amqp.Delivery) flow.Request { return flow.Request{Key: "slow"} }
