package kafka_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/test/servers"
)

// cluster is a broker with a client for tests.
type cluster struct {
	*servers.Kafka
	t      *testing.T
	client *kgo.Client
	admin  *kadm.Client
}

func start(t *testing.T) *cluster {
	t.Helper()
	k := &cluster{t: t, Kafka: servers.StartKafka(t,
		"group.consumer.min.heartbeat.interval.ms=100", "group.consumer.heartbeat.interval.ms=200",
		// A broker that was killed is taken back once its session is over: nine seconds by default.
		"broker.session.timeout.ms=5000", "broker.heartbeat.interval.ms=1000")}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	k.client, k.admin = client, kadm.NewClient(client)
	return k
}

// of is the same broker for a subtest.
func (k *cluster) of(t *testing.T) *cluster {
	sub := *k
	sub.t = t
	return &sub
}

// within is how long a test waits for what must come.
var within = 2 * time.Minute

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is not so that %s", within, what)
		}
	}
}

func (k *cluster) topic(name string, partitions int32, configs ...string) string {
	k.t.Helper()
	settings := make(map[string]*string)
	for i := 0; i+1 < len(configs); i += 2 {
		settings[configs[i]] = &configs[i+1]
	}
	if _, err := k.admin.CreateTopic(servers.Bounded(k.t), partitions, 1, settings, name); err != nil {
		k.t.Fatalf("the broker has not made the topic %q: %v", name, err)
	}
	return name
}

// produce writes records of topic to partitions, and waits until they are there.
func (k *cluster) produce(records ...*kgo.Record) {
	k.t.Helper()
	if err := k.client.ProduceSync(servers.Bounded(k.t), records...).FirstErr(); err != nil {
		k.t.Fatalf("the broker has not written %d records: %v", len(records), err)
	}
}

// record is a record whose value says which it is.
func record(topic string, partition int32, key string, n int) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: fmt.Append(nil, n)}
}

// noise is bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// read returns all that is in a topic.
func (k *cluster) read(topic string, count int) []*kgo.Record {
	k.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.ConsumeTopics(topic))
	if err != nil {
		k.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(k.t.Context(), within)
	defer cancel()
	var all []*kgo.Record
	for len(all) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			k.t.Fatalf("%d of %d records of %q: %v", len(all), count, topic, err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// committed is the sum of the offsets that a group has committed in a topic, or -1 if the
// broker does not say, as after it was killed.
func (k *cluster) committed(group, topic string) int64 {
	k.t.Helper()
	offsets, err := k.admin.FetchOffsets(servers.Bounded(k.t), group)
	if err != nil {
		k.t.Log(err)
		return -1
	}
	var sum int64
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.Err == nil {
			sum += o.At
		}
	})
	return sum
}

// running is a consumer that runs.
type running struct {
	*kafka.Consumer
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

// run starts a consumer. It is stopped when the test ends.
func (k *cluster) run(config kafka.Config) *running {
	k.t.Helper()
	if config.Brokers == nil {
		config.Brokers = []string{k.Addr()}
	}
	if config.Group == "" {
		config.Group = config.Topics[0]
	}
	if config.DeadLetter == "" && config.Exhausted == kafka.ToDeadLetter {
		config.Exhausted = kafka.Block
	}
	if config.CommitEvery == 0 {
		config.CommitEvery = 50 * time.Millisecond // tests wait for it
	}
	if config.Hooks.Error == nil {
		config.Hooks.Error = func(err error) { k.t.Log(err) }
	}
	c, err := kafka.New(config)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: c, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if r.err = c.Run(ctx); r.err != nil {
			k.t.Log(r.err)
		}
	}()
	k.t.Cleanup(func() {
		if err := r.end(); err != nil {
			k.t.Log(err)
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

// seen collects what was handled.
type seen struct {
	mu      sync.Mutex
	order   map[string][]int64 // keys to offsets, in the order in which handling began
	records map[string]int     // values to how often
}

func newSeen() *seen {
	return &seen{order: make(map[string][]int64), records: make(map[string]int)}
}

func (s *seen) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%s/%d/%s", r.Topic, r.Partition, r.Key)
	s.order[key] = append(s.order[key], r.Offset)
	s.records[fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)]++
}

func (s *seen) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// peak counts what goes on at a time, and the most that it was.
type peak struct{ now, most atomic.Int64 }

// enter counts one, until what it returns is called.
func (p *peak) enter() func() {
	n := p.now.Add(1)
	for m := p.most.Load(); n > m; m = p.most.Load() {
		if p.most.CompareAndSwap(m, n) {
			break
		}
	}
	return func() { p.now.Add(-1) }
}
