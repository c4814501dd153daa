package kafka_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/test/servers"
)

// child is the environment variable that makes this program a consumer to be killed: the
// broker's address, a space and the topic.
const child = "HEADGATE_TEST_KAFKA_CHILD"

// TestChild is no test: it is the consumer that killed kills.
func TestChild(t *testing.T) {
	broker, topic, ok := strings.Cut(os.Getenv(child), " ")
	if !ok {
		return
	}
	c, err := kafka.New(kafka.Config{
		Brokers: []string{broker}, Group: topic, Topics: []string{topic}, Exhausted: kafka.Block,
		CommitEvery: 20 * time.Millisecond, MaxRecords: 100,
		Handle: func(_ context.Context, r *kgo.Record) error {
			time.Sleep(2 * time.Millisecond)
			_, err := fmt.Printf("handled %d/%d\n", r.Partition, r.Offset)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(c.Run(context.Background()))
}

// killed kills consumers with SIGKILL in the middle of their work: nothing is lost, and
// nothing is handled again that was committed.
func killed(t *testing.T, k *cluster) {
	topic := k.topic("killed", 3)
	const count, kills = 3000, 3
	var records []*kgo.Record
	for i := range count {
		records = append(records, record(topic, int32(i%3), fmt.Sprint(i%50), i))
	}
	k.produce(records...)
	handled := make(map[string]int) // "partition/offset" to how often
	again := 0                      // what was handled when a consumer was killed, and not committed
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range kills {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), child+"="+k.Addr()+" "+topic)
		servers.Bind(cmd)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			if place, ok := strings.CutPrefix(lines.Text(), "handled "); ok {
				handled[place]++
				if n++; n == 500 {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		k.expel(topic)
		committed, err := k.admin.FetchOffsets(servers.Bounded(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		for place := range handled {
			var partition int32
			var offset int64
			if _, err := fmt.Sscanf(place, "%d/%d", &partition, &offset); err != nil {
				t.Fatal(err)
			}
			if o, ok := committed.Lookup(topic, partition); !ok || offset >= o.At {
				again++
			}
		}
	}
	s := newSeen()
	k.run(kafka.Config{
		Topics: []string{topic},
		Handle: func(_ context.Context, r *kgo.Record) error { s.add(r); return nil },
	})
	await(t, "all is committed", func() bool { return k.committed(topic, topic) == count })
	for place, n := range s.records {
		handled[strings.TrimPrefix(place, topic+"/")] += n
	}
	twice := 0
	for _, n := range handled {
		twice += n - 1
	}
	t.Logf("%d kills: %d of %d records were handled, %d of them again", kills, len(handled), count, twice)
	if len(handled) != count {
		t.Errorf("%d of %d records were handled", len(handled), count)
	}
	if twice > again {
		t.Errorf("%d records were handled again, and %d were not committed when consumers were killed", twice, again)
	}
}

// expel removes the members of a group, as the broker does when their sessions time out: a test
// whose sessions are short enough to wait for them loses sessions of the living on a busy machine.
func (k *cluster) expel(group string) {
	k.t.Helper()
	described, err := k.admin.DescribeGroups(servers.Bounded(k.t), group)
	if err == nil {
		err = described.Error()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = group
	for _, m := range described[group].Members {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		leave.Members = append(leave.Members, member)
	}
	if len(leave.Members) == 0 {
		k.t.Fatalf("the group %q has no members", group)
	}
	answer, err := leave.RequestWith(servers.Bounded(k.t), k.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// brokerKilled kills the broker in the middle of the work and starts it again.
func brokerKilled(t *testing.T, k *cluster) {
	topic, dead := k.topic("restart", 3), k.topic("restart.dead", 1)
	const count = 3000
	var records []*kgo.Record
	for i := range count {
		records = append(records, record(topic, int32(i%3), fmt.Sprint(i%50), i))
	}
	k.produce(records...)
	s := newSeen()
	c := k.run(kafka.Config{
		Topics: []string{topic}, DeadLetter: dead, CommitEvery: 50 * time.Millisecond,
		Retry: kafka.Retry{Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
		Handle: func(_ context.Context, r *kgo.Record) error {
			time.Sleep(10 * time.Millisecond)
			if s.add(r); r.Offset%100 == 0 {
				return errPartner
			}
			return nil
		},
	})
	await(t, "a part is handled", func() bool { return s.distinct() > count/10 })
	k.Kill()
	handledBefore := s.distinct()
	k.Restart()
	await(t, "all is committed", func() bool { return k.committed(topic, topic) == count })
	if n := s.distinct(); n != count {
		t.Errorf("%d of %d records were handled", n, count)
	}
	if n := len(k.read(dead, 30)); n < 30 {
		t.Errorf("%d dead letters, want 30 at least", n)
	}
	t.Logf("%d records were handled before the broker was killed; then %+v", handledBefore, c.Stats().Counts)
}
