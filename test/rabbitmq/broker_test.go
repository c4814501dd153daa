package rabbitmq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/internal/leakwait"
	"github.com/headgate/headgate/test/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(leakwait.After(m, goleak.Find))
}

// node is a broker with a connection for tests.
type node struct {
	*servers.RabbitMQ
	t *testing.T
}

func start(t *testing.T, settings ...string) *node {
	t.Helper()
	return &node{servers.StartRabbitMQ(t, settings...), t}
}

// of is the same broker for a subtest.
func (n *node) of(t *testing.T) *node { return &node{n.RabbitMQ, t} }

func (n *node) broker() rabbitmq.Broker {
	return rabbitmq.Broker{URLs: []string{n.URL()}, Timeout: time.Minute}
}

// within is how long a test waits for what must come.
const within = 5 * time.Minute

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is not so that %s", within, what)
		}
	}
}

// channel is a plain one, past the code that is tested. It is closed when the test ends.
func (n *node) channel() *amqp.Channel {
	n.t.Helper()
	conn, err := amqp.Dial(n.URL())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() }) // the broker may be gone
	ch, err := conn.Channel()
	if err != nil {
		n.t.Fatal(err)
	}
	return ch
}

// queue declares a queue.
func (n *node) queue(q rabbitmq.Queue) string {
	n.t.Helper()
	if err := (rabbitmq.Topology{Queues: []rabbitmq.Queue{q}}).Apply(servers.Bounded(n.t), n.broker()); err != nil {
		n.t.Fatal(err)
	}
	return q.Name
}

// publisher makes one that is closed when the test ends.
func (n *node) publisher(config rabbitmq.PublisherConfig) *rabbitmq.Publisher {
	n.t.Helper()
	config.Broker = n.broker()
	if config.Hooks.Error == nil {
		config.Hooks.Error = func(err error) { n.t.Log(err) }
	}
	p, err := rabbitmq.NewPublisher(config)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		_ = p.Close(ctx) // the test may have left what cannot be confirmed
	})
	return p
}

func to(queue string, body string) rabbitmq.Message {
	return rabbitmq.Message{Key: queue, Publishing: amqp.Publishing{Body: []byte(body)}}
}

// fill publishes messages whose bodies are their numbers.
func (n *node) fill(queue string, count int) {
	n.t.Helper()
	p := n.publisher(rabbitmq.PublisherConfig{})
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			if err := p.Publish(servers.Bounded(n.t), to(queue, fmt.Sprint(i))); err != nil {
				n.t.Error(err)
			}
		})
	}
	all.Wait()
	if err := p.Close(servers.Bounded(n.t)); err != nil {
		n.t.Error(err)
	}
}

// depth is how many messages are ready in a queue.
func depth(t *testing.T, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// read takes so many messages out of a queue.
func (n *node) read(queue string, count int) []amqp.Delivery {
	n.t.Helper()
	ch := n.channel()
	var all []amqp.Delivery
	await(n.t, fmt.Sprintf("%q has %d messages", queue, count), func() bool {
		for len(all) < count {
			d, ok, err := ch.Get(queue, true)
			if err != nil {
				n.t.Fatal(err)
			}
			if !ok {
				return false
			}
			all = append(all, d)
		}
		return true
	})
	return all
}

// running is a consumer that runs.
type running struct {
	*rabbitmq.Consumer
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

// run starts a consumer. It is stopped when the test ends.
func (n *node) run(config rabbitmq.Config) *running {
	n.t.Helper()
	config.Broker = n.broker()
	if config.DeadLetter.Name == "" && config.Exhausted == rabbitmq.ToDeadLetter {
		config.Exhausted = rabbitmq.Block
	}
	if config.Hooks.Error == nil {
		config.Hooks.Error = func(err error) { n.t.Log(err) }
	}
	c, err := rabbitmq.New(config)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: c, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if r.err = c.Run(ctx); r.err != nil {
			n.t.Log(r.err)
		}
	}()
	n.t.Cleanup(func() {
		if err := r.end(); err != nil {
			n.t.Log(err)
		}
	})
	return r
}

// end stops a consumer and returns what Run returned.
func (r *running) end() error {
	r.stop()
	select {
	case <-r.done:
		return r.err
	case <-time.After(within):
		return fmt.Errorf("the consumer was told to end, and %v later its Run has not", within)
	}
}

// seen counts what was handled, by body.
type seen struct {
	mu     sync.Mutex
	bodies map[string]int
	total  int
}

func (s *seen) add(d *amqp.Delivery) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bodies == nil {
		s.bodies = make(map[string]int)
	}
	s.total++
	s.bodies[string(d.Body)]++
	return s.bodies[string(d.Body)]
}

func (s *seen) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// with is how many different messages were handled here or are among the others.
func (s *seen) with(others map[string]int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(others)
	for body := range s.bodies {
		if others[body] == 0 {
			n++
		}
	}
	return n
}

func (s *seen) all() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
