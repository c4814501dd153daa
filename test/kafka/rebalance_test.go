package kafka_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/test/servers"
)

// rebalancing is 200 for the trial that docs/kafka.md tells of.
var rebalancing = flag.Int("rebalances", 4, "how many rebalances to force with each protocol")

// ledger watches handlers of several consumers.
type ledger struct {
	mu       sync.Mutex
	next     map[string]int64 // keys to the first offset that was not handled before
	running  map[string]bool  // keys
	handled  map[string]int   // places to how often
	progress map[int32]time.Time
	problems []string
	// inFlight is what was being handled when a consumer was told to stop.
	duplicates int
}

func newLedger() *ledger {
	return &ledger{
		next: make(map[string]int64), running: make(map[string]bool),
		handled: make(map[string]int), progress: make(map[int32]time.Time),
	}
}

func (l *ledger) begin(r *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprintf("%d/%s", r.Partition, r.Key)
	at := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
	l.progress[r.Partition] = time.Now()
	if l.running[key] {
		l.problems = append(l.problems, fmt.Sprintf("two records of key %s at a time", key))
	}
	l.running[key] = true
	if l.handled[at]++; l.handled[at] > 1 {
		l.duplicates++
	} else if r.Offset < l.next[key] {
		l.problems = append(l.problems, fmt.Sprintf("key %s: offset %d after %d", key, r.Offset, l.next[key]-1))
	}
	l.next[key] = max(l.next[key], r.Offset+1)
}

func (l *ledger) end(r *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, fmt.Sprintf("%d/%s", r.Partition, r.Key))
}

func (l *ledger) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.handled)
}

// rebalances has members come and go while records flow: with the cooperative
// protocol, with the eager one, and with the one that brokers since 4.0 run.
func rebalances(t *testing.T, k *cluster) {
	for _, protocol := range []struct {
		name    string
		options []kgo.Opt
	}{
		{"cooperative", []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}},
		{"eager", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}},
		{"server", []kgo.Opt{kgo.ServerSideBalancer()}},
	} {
		t.Run(protocol.name, func(t *testing.T) { rebalance(t, k.of(t), protocol.name, protocol.options) })
	}
}

func rebalance(t *testing.T, k *cluster, name string, options []kgo.Opt) {
	const partitions, budget = 12, 2 << 20
	topic := k.topic("rebalances-"+name, partitions)
	l := newLedger()
	handle := func(_ context.Context, r *kgo.Record) error {
		l.begin(r)
		defer l.end(r)
		time.Sleep(rand.N(10 * time.Millisecond))
		return nil
	}
	member := func() *running {
		return k.run(kafka.Config{
			Group: topic, Topics: []string{topic}, Handle: handle, MaxBytes: budget, Workers: 32,
			Options:     append([]kgo.Opt{kgo.HeartbeatInterval(200 * time.Millisecond)}, options...),
			CommitEvery: 100 * time.Millisecond,
			Hooks:       kafka.Hooks{Error: func(err error) { t.Log(err) }},
		})
	}

	// Records come faster than they are handled at times, so that there is a backlog.
	produced := make([]int, partitions)
	ctx, stop := context.WithCancel(t.Context())
	var producer sync.WaitGroup
	producer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			var batch []*kgo.Record
			for range 60 {
				p := rand.IntN(partitions)
				r := record(topic, int32(p), fmt.Sprint(rand.IntN(20)), n)
				r.Value = append(r.Value, make([]byte, 1000)...)
				batch = append(batch, r)
				produced[p]++
			}
			if err := k.client.ProduceSync(servers.Bounded(t), batch...).FirstErr(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	defer func() { stop(); producer.Wait() }()

	var memory, pauses int64
	var stuck time.Duration
	var members []*running
	ended := make(map[*running]bool)
	began := time.Now()
	look := func() (assigned int) {
		now := time.Now()
		for _, m := range members {
			s := m.Stats()
			memory = max(memory, s.Bytes+s.Fetched)
			for _, p := range s.Partitions {
				assigned++
				l.mu.Lock()
				if p.Lag > 0 && !l.progress[p.Partition].IsZero() {
					stuck = max(stuck, now.Sub(l.progress[p.Partition]))
				}
				l.mu.Unlock()
			}
		}
		return assigned
	}
	members = append(members, member(), member())
	for range *rebalancing {
		if n := len(members); n < 2 || n < 5 && rand.IntN(2) == 0 {
			members = append(members, member())
		} else {
			i := rand.IntN(n)
			m := members[i]
			members = append(members[:i], members[i+1:]...)
			if err := m.end(); err != nil {
				t.Error(err)
			}
			ended[m] = true
			pauses += int64(m.Stats().Pauses)
		}
		n := len(members)
		await(t, "all partitions are assigned, to all members", func() bool {
			assigned := look()
			for _, m := range members {
				if len(m.Stats().Partitions) == 0 {
					return false
				}
			}
			return assigned == partitions && n > 0
		})
		for end := time.Now().Add(rand.N(300 * time.Millisecond)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			look()
		}
	}
	stop()
	producer.Wait()
	all := 0
	for _, n := range produced {
		all += n
	}
	await(t, "all records are handled", func() bool { look(); return l.distinct() == all })
	took := time.Since(began)
	for _, m := range members {
		if err := m.end(); err != nil {
			t.Error(err)
		}
		pauses += int64(m.Stats().Pauses)
	}
	if got := k.committed(topic, topic); got != int64(all) {
		t.Errorf("%d of %d records are committed", got, all)
	}
	for _, p := range l.problems {
		t.Error(p)
	}
	perMinute := float64(pauses) / partitions / max(took.Minutes(), 1)
	t.Logf("%d rebalances in %v: %d records, %d handled twice, longest without progress %v, memory %.2f of the budget, %.2f pauses a minute and partition",
		*rebalancing, took.Round(time.Second), all, l.duplicates, stuck.Round(time.Millisecond), float64(memory)/budget, perMinute)
	if float64(memory) > 1.1*budget {
		t.Errorf("at most %d bytes were held, of a budget of %d", memory, budget)
	}
	if perMinute > 2 {
		t.Errorf("%.2f pauses a minute and partition, want 2 at most", perMinute)
	}
	if l.duplicates > 0 {
		t.Errorf("%d records were handled twice: members that leave finish what they do", l.duplicates)
	}
	// That is 5 seconds on a machine of its own.
	if stuck > within {
		t.Errorf("a partition made no progress for %v", stuck)
	}
}
