package kafka_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/test/servers"
)

// example: all orders are billed, no faster than the partner takes them, the one that
// is empty ends in the dead-letter topic, and the program ends when it is told to.
func example(t *testing.T, k *cluster) {
	orders := k.topic("orders", 3)
	k.topic("orders.retry", 1)
	k.topic("orders.dead", 1)
	program, err := servers.Build("example-kafka", "examples", "./kafka")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(servers.Bounded(t), program, k.Addr())
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
	await(t, "the program waits for orders", func() bool {
		groups, err := k.admin.DescribeGroups(servers.Bounded(t), "billing")
		return err == nil && groups["billing"].State == "Stable"
	})
	const count = 120
	var records []*kgo.Record
	for i := range count {
		records = append(records, &kgo.Record{Topic: orders, Partition: int32(i % 3), Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "order %d", i)})
	}
	began := time.Now()
	k.produce(append(records, &kgo.Record{Topic: orders, Key: []byte("none")})...)
	billed, given := make(map[string]bool), 0
	var last time.Time
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if order, ok := strings.CutPrefix(lines.Text(), "billed "); ok {
			billed[order] = true
			last = time.Now()
		} else if strings.HasSuffix(lines.Text(), ": the order is empty") {
			given++
		}
		if len(billed) == count && given == 1 {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	if len(billed) != count || given != 1 {
		t.Errorf("%d orders were billed and %d given up, want %d and 1: %s", len(billed), given, count, problems.String())
	}
	// 50 at once, 50 a second later, and the others another second later.
	if took := last.Sub(began); took < 1900*time.Millisecond {
		t.Errorf("%d orders were billed in %v, but the partner takes 50 a second", count, took)
	}
	if o, ok := kafka.OriginOf(k.read("orders.dead", 1)[0]); !ok || o.Topic != orders || o.Attempts != 3 {
		t.Errorf("the dead letter is from %+v, want 3 attempts", o)
	}
	if n := k.committed("billing", orders); n != count+1 {
		t.Errorf("%d orders are committed, want %d", n, count+1)
	}
}
