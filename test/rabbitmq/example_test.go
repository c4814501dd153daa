package rabbitmq_test

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/test/servers"
)

// example: all orders are billed, no faster than the partner takes them, the one that
// is empty ends in the dead-letter queue, and the program ends when it is told to.
func example(t *testing.T, n *node) {
	program, err := servers.Build("example-rabbitmq", "examples", "./rabbitmq")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(servers.Bounded(t), program, n.URL(), "bill")
	servers.Bind(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It makes the queue, too; until then a channel that asks for it is closed.
	conn, err := amqp.Dial(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	await(t, "the program waits for orders", func() bool {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		defer ch.Close()
		q, err := ch.QueueDeclarePassive("orders", true, false, false, false, nil)
		return err == nil && q.Consumers > 0
	})
	began := time.Now()
	if out, err := exec.CommandContext(servers.Bounded(t), program, n.URL(), "place", "120").CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	p := n.publisher(rabbitmq.PublisherConfig{})
	if err := p.Publish(servers.Bounded(t), to("orders", "")); err != nil {
		t.Fatal(err)
	}
	billed, given := make(map[string]bool), 0
	var last time.Time
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if order, ok := strings.CutPrefix(lines.Text(), "billed "); ok {
			billed[order] = true
			last = time.Now()
		} else if strings.HasSuffix(lines.Text(), ": the order is empty") {
			given++
		}
		if len(billed) == 120 && given == 1 {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	if len(billed) != 120 || given != 1 {
		t.Errorf("%d orders were billed and %d given up, want 120 and 1: %s", len(billed), given, problems.String())
	}
	// 50 at once, 50 a second later, and the others another second later.
	if took := last.Sub(began); took < 1900*time.Millisecond {
		t.Errorf("120 orders were billed in %v, but the partner takes 50 a second", took)
	}
	if o, ok := rabbitmq.OriginOf(n.read("orders.dead", 1)[0].Headers); !ok || o.Queue != "orders" || o.Attempts != 3 {
		t.Errorf("the dead letter is from %+v, want 3 attempts", o)
	}
	if left := depth(t, n.channel(), "orders"); left != 0 {
		t.Errorf("%d orders are left", left)
	}
}
