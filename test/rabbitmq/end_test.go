package rabbitmq_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/test/servers"
)

// child is the environment variable that makes this program a consumer to be killed: the
// broker's URL, a space, the queue, a space and "die" if a message is to kill it.
const child = "HEADGATE_TEST_RABBITMQ_CHILD"

// TestChild is no test: it is the consumer that others kill.
func TestChild(t *testing.T) {
	fields := strings.Fields(os.Getenv(child))
	if len(fields) == 0 {
		return
	}
	die := len(fields) > 2
	c, err := rabbitmq.New(rabbitmq.Config{
		Broker: rabbitmq.Broker{URLs: fields[:1]}, Setup: rabbitmq.Exists,
		Queue: rabbitmq.Queue{Name: fields[1]}, Exhausted: rabbitmq.Block,
		Prefetch: rabbitmq.Prefetch{Min: 50, Max: 50},
		Handle: func(_ context.Context, d *amqp.Delivery) error {
			if die {
				os.Exit(3)
			}
			time.Sleep(2 * time.Millisecond)
			_, err := fmt.Printf("handled %s\n", d.Body)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(c.Run(context.Background()))
}

func (n *node) child(args ...string) *exec.Cmd {
	n.t.Helper()
	program, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), program, "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), child+"="+n.URL()+" "+strings.Join(args, " "))
	servers.Bind(cmd)
	return cmd
}

// killed kills consumers with SIGKILL in the middle of their work: nothing is lost, and no
// more comes again than was held.
func killed(t *testing.T, n *node) {
	both(t, "killed", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		n.queue(q)
		const count, kills, prefetch = 2000, 3, 50
		n.fill(q.Name, count)
		handled := make(map[string]int)
		for range kills {
			cmd := n.child(q.Name)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for done := 0; lines.Scan(); {
				if body, ok := strings.CutPrefix(lines.Text(), "handled "); ok {
					handled[body]++
					if done++; done == 300 {
						if err := cmd.Process.Kill(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := cmd.Wait(); err == nil {
				t.Fatal("the child ended by itself")
			}
		}
		var s seen
		c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error { s.add(d); return nil }})
		// An empty queue does not say that all are done: the broker may have yet to see that the last
		// child is gone, or be handing out the rest.
		await(t, "all are handled", func() bool { return s.with(handled) == count })
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		for body, n := range s.bodies {
			handled[body] += n
		}
		again := 0
		for _, n := range handled {
			again += n - 1
		}
		t.Logf("%d kills: all of %d messages were handled, %d of them again", kills, count, again)
		if again > kills*prefetch {
			t.Errorf("%d messages were handled again, want %d at most: the prefetch for each kill", again, kills*prefetch)
		}
	})
}

// poison: a message that kills each process that handles it is a dead letter after as many
// deliveries as the limit says.
func poison(t *testing.T, n *node) {
	for _, limit := range []int{1, 3} {
		n := n.of(t)
		dead := n.queue(rabbitmq.Queue{Name: fmt.Sprintf("poison-%d.dead", limit)})
		q := rabbitmq.Queue{Name: fmt.Sprintf("poison-%d", limit), DeliveryLimit: limit, DeadLetter: dead}
		n.queue(q)
		n.fill(q.Name, 1)
		ch := n.channel()
		deaths := 0
		await(t, "the message is a dead letter", func() bool {
			if depth(t, ch, dead) == 1 {
				return true
			}
			if depth(t, ch, q.Name) == 1 { // the broker has seen that the last one is gone
				if err := n.child(q.Name, "die").Run(); err == nil {
					t.Fatal("the child ended by itself")
				}
				deaths++
			}
			return false
		})
		if deaths != limit {
			t.Errorf("the message has killed %d processes, want %d", deaths, limit)
		}
		d := n.read(dead, 1)[0]
		if o, ok := rabbitmq.OriginOf(d.Headers); !ok || o.Queue != q.Name || o.Reason != "delivery_limit" {
			t.Errorf("%+v, %v; headers %v", o, ok, d.Headers)
		}
	}
}

// drain: what is being handled is finished, and the rest goes back at once.
func drain(t *testing.T, n *node) {
	both(t, "drain", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		n.queue(q)
		const count, workers = 100, 4
		n.fill(q.Name, count)
		release := make(chan struct{})
		var s seen
		c := n.run(rabbitmq.Config{
			Queue: q, Workers: workers, Prefetch: rabbitmq.Prefetch{Min: 50, Max: 50},
			Handle: func(ctx context.Context, d *amqp.Delivery) error {
				s.add(d)
				<-release
				return ctx.Err()
			},
			Drain: within,
		})
		await(t, "workers work", func() bool { return s.all() == workers && c.Stats().Held == 50 })
		c.stop()
		ch := n.channel()
		await(t, "the rest is back", func() bool { return depth(t, ch, q.Name) == count-workers })
		close(release)
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if ready := depth(t, ch, q.Name); ready != count-workers || s.all() != workers {
			t.Errorf("%d are left and %d were handled, want %d and %d", ready, s.all(), count-workers, workers)
		}
		counted := 0
		for _, d := range n.read(q.Name, count-workers) {
			if count, ok := d.Headers["x-delivery-count"].(int64); ok && count > 0 {
				counted++
			}
		}
		t.Logf("%d of those that went back count as delivered", counted)
	})
}

// stuckHandler: Run ends although a handler does not, and the message comes again.
func stuckHandler(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "stuck"}
	n.queue(q)
	n.fill(q.Name, 1)
	release := make(chan struct{})
	defer close(release)
	var begun atomic.Int32
	c := n.run(rabbitmq.Config{
		Queue: q, Drain: 50 * time.Millisecond,
		Handle: func(context.Context, *amqp.Delivery) error {
			begun.Add(1)
			<-release
			return nil
		},
	})
	await(t, "it is being handled", func() bool { return begun.Load() == 1 })
	if err := c.end(); !errors.Is(err, rabbitmq.ErrAbandoned) {
		t.Errorf("error %v, want ErrAbandoned", err)
	}
	d := n.read(q.Name, 1)[0]
	if d.Headers["x-delivery-count"] != int64(1) {
		t.Errorf("the message counts %v deliveries, want 1", d.Headers["x-delivery-count"])
	}
}

// hold: what waits for too long goes to somebody else.
func hold(t *testing.T, n *node) {
	// RabbitMQ 3.10 counts each time that a message goes back.
	q := rabbitmq.Queue{Name: "hold", DeliveryLimit: 1_000_000}
	n.queue(q)
	const count = 10
	n.fill(q.Name, count)
	release := make(chan struct{})
	c := n.run(rabbitmq.Config{
		Queue: q, Workers: 1, Hold: 200 * time.Millisecond, Prefetch: rabbitmq.Prefetch{Min: count, Max: count, Every: 100 * time.Millisecond},
		Handle: func(context.Context, *amqp.Delivery) error { <-release; return nil },
	})
	await(t, "the first hold all", func() bool { return c.Stats().Held == count })
	var s seen
	other := n.run(rabbitmq.Config{
		Queue:  q,
		Handle: func(_ context.Context, d *amqp.Delivery) error { s.add(d); return nil },
	})
	await(t, "another has all but one", func() bool { return s.distinct() == count-1 })
	close(release)
	await(t, "all are done", func() bool { return c.Stats().Held+other.Stats().Held == 0 })
	if c.Stats().Requeued == 0 {
		t.Errorf("%+v", c.Stats())
	}
}

// closedChannel: the broker closes the channel of a consumer, here because a message was not
// acknowledged in time, and the consumer goes on.
func closedChannel(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "closed"}
	n.queue(q)
	n.fill(q.Name, 20)
	var s seen
	c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error { s.add(d); return nil }})
	await(t, "the first are done", func() bool { return s.all() == 20 && c.Stats().Held == 0 })
	for round := range 2 {
		n.Eval(`rabbit_networking:close_all_connections("a test").`)
		await(t, "it is back", func() bool { st := c.Stats(); return st.Connects >= uint64(round)+2 && st.Prefetch > 0 })
		n.fill(q.Name, 20)
		await(t, "the next are done", func() bool { return s.all() == 20*(round+2) && c.Stats().Held == 0 })
	}
}

// queueDeleted: the broker cancels a consumer whose queue goes, and the consumer makes it
// again.
func queueDeleted(t *testing.T, n *node) {
	both(t, "deleted", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		var s seen
		c := n.run(rabbitmq.Config{Queue: q, Handle: func(_ context.Context, d *amqp.Delivery) error { s.add(d); return nil }})
		await(t, "it is there", func() bool { return c.Stats().Prefetch > 0 })
		if _, err := n.channel().QueueDelete(q.Name, false, false, false); err != nil {
			t.Fatal(err)
		}
		await(t, "it is back", func() bool { st := c.Stats(); return st.Connects == 2 && st.Prefetch > 0 })
		n.fill(q.Name, 10)
		await(t, "all are done", func() bool { return s.all() == 10 && c.Stats().Held == 0 })
	})
}

// tierDeleted: a tier that somebody deletes is made again, and no letter is lost.
func tierDeleted(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "untiered"}
	var s seen
	c := n.run(rabbitmq.Config{
		Queue: q, Retry: rabbitmq.Retry{Tiers: []rabbitmq.Tier{{Delay: 10 * time.Millisecond, Queue: "untiered.tier"}}},
		Handle: func(_ context.Context, d *amqp.Delivery) error {
			if s.add(d); d.Headers[rabbitmq.HeaderAttempts] == nil {
				return errPartner
			}
			return nil
		},
	})
	await(t, "it is there", func() bool { return c.Stats().Prefetch > 0 })
	if _, err := n.channel().QueueDelete("untiered.tier", false, false, false); err != nil {
		t.Fatal(err)
	}
	n.fill(q.Name, 10)
	await(t, "all have passed the tier", func() bool { st := c.Stats(); return st.Handled-st.Failed >= 10 && st.Held == 0 && st.Ready == 0 })
	if s.distinct() != 10 {
		t.Errorf("%d messages were handled, want 10", s.distinct())
	}
}

// prefetchGrows: workers that wait for messages get more of them.
func prefetchGrows(t *testing.T, n *node) {
	both(t, "grows", func(t *testing.T, q rabbitmq.Queue) {
		n := n.of(t)
		n.queue(q)
		const count, least, most = 1500, 2, 64
		n.fill(q.Name, count)
		var s seen
		var open, grown atomic.Bool
		c := n.run(rabbitmq.Config{
			Queue: q, Workers: 100, Prefetch: rabbitmq.Prefetch{Min: least, Max: most, Every: 100 * time.Millisecond},
			// It begins with the larger one, and lowers it while the gate lets little in.
			Gate: &every{wait: 20 * time.Millisecond},
			Request: func(*amqp.Delivery) flow.Request {
				if !open.Load() {
					return flow.Request{Key: "slow"}
				}
				return flow.Request{}
			},
			Handle: func(_ context.Context, d *amqp.Delivery) error {
				s.add(d)
				if open.Load() && !grown.Load() {
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			},
		})
		low := most
		await(t, "it is lowered while little is let in", func() bool {
			if st := c.Stats(); st.Prefetch > 0 {
				low = min(low, st.Prefetch)
			}
			return low < most/2
		})
		open.Store(true)
		await(t, "it grows while workers wait", func() bool { return c.Stats().Prefetch > low })
		st := c.Stats()
		t.Logf("the prefetch was %d, and then %d; it was changed %d times", low, st.Prefetch, st.Tuned)
		grown.Store(true)
		await(t, "all are done", func() bool { return s.distinct() == count && c.Stats().Held == 0 })
		if s.all() != count {
			t.Errorf("%d messages were handled, want %d", s.all(), count)
		}
	})
}

// prefetchShrinks: a consumer whose gate lets little in leaves messages to others.
func prefetchShrinks(t *testing.T, n *node) {
	q := rabbitmq.Queue{Name: "shrinks"}
	n.queue(q)
	n.fill(q.Name, 2000)
	c := n.run(rabbitmq.Config{
		Queue: q, Workers: 100, Gate: &every{wait: 10 * time.Millisecond},
		Prefetch: rabbitmq.Prefetch{Min: 5, Max: 200, Every: 100 * time.Millisecond},
		Request:  slowly,
		Handle:   func(context.Context, *amqp.Delivery) error { return nil },
	})
	await(t, "it holds no more than it needs", func() bool { st := c.Stats(); return st.Tuned > 0 && st.Prefetch <= 50 })
	t.Logf("%+v", c.Stats())
}
