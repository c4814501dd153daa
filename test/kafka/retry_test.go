package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/contrib/kafka"
)

var errPartner = errors.New("the partner said no")

func retryTopics(t *testing.T, k *cluster) {
	topic, dead := k.topic("retry", 1), k.topic("retry.dead", 1)
	tiers := []kafka.Tier{
		{Topic: k.topic("retry.1", 2), Delay: 300 * time.Millisecond},
		{Topic: k.topic("retry.2", 1), Delay: 3 * time.Second},
	}
	var mu sync.Mutex
	tries := make(map[string][]string) // values to topics
	times := make(map[string][]time.Time)
	c := k.run(kafka.Config{
		Topics: []string{topic}, DeadLetter: dead,
		Retry: kafka.Retry{InPlace: 2, Backoff: time.Millisecond, Tiers: tiers},
		Handle: func(_ context.Context, r *kgo.Record) error {
			mu.Lock()
			v := string(r.Value)
			tries[v] = append(tries[v], r.Topic)
			times[v] = append(times[v], time.Now())
			n := len(tries[v])
			mu.Unlock()
			switch {
			case v == "never", v == "second tier" && n < 5, v == "first tier" && n < 4, v == "in place" && n < 3:
				return fmt.Errorf("try %d: %w", n, errPartner)
			case v == "panics":
				panic(errPartner)
			case v == "exits":
				runtime.Goexit()
			case v == "permanent":
				return kafka.Permanent(errPartner)
			}
			return nil
		},
	})
	want := map[string][]string{
		"good": {topic}, "in place": {topic, topic, topic},
		"first tier":  {topic, topic, topic, tiers[0].Topic},
		"second tier": {topic, topic, topic, tiers[0].Topic, tiers[1].Topic},
		"never":       {topic, topic, topic, tiers[0].Topic, tiers[1].Topic},
		"panics":      {topic}, "exits": {topic}, "permanent": {topic},
	}
	values := []string{"never", "panics", "exits", "permanent", "first tier", "second tier", "in place", "good"}
	for i, v := range values {
		k.produce(&kgo.Record{
			Topic: topic, Key: []byte(v), Value: []byte(v),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: fmt.Append(nil, i)}},
		})
	}
	letters := k.read(dead, 4)
	got := make(map[string]kafka.Origin)
	for _, r := range letters {
		o, ok := kafka.OriginOf(r)
		if !ok {
			t.Fatalf("headers %v", r.Headers)
		}
		got[string(r.Value)] = o
		i := slices.Index(values, string(r.Value))
		if o.Topic != topic || o.Offset != int64(i) || o.Group != topic || o.Failed.IsZero() || o.Timestamp.IsZero() || !o.Due.IsZero() {
			t.Errorf("%s: origin %+v", r.Value, o)
		}
		if string(r.Key) != values[i] || r.Headers[0].Key != "trace" || string(r.Headers[0].Value) != fmt.Sprint(i) {
			t.Errorf("%s: key %q, headers %v", r.Value, r.Key, r.Headers)
		}
	}
	if o := got["never"]; o.Attempts != 5 || !strings.Contains(o.Reason, "try 5: the partner said no") {
		t.Errorf("never: %+v, want 5 attempts and the last reason", o)
	}
	for v, reason := range map[string]string{"panics": "panicked: the partner", "exits": "ended its goroutine", "permanent": "the partner"} {
		if o := got[v]; o.Attempts != 1 || !strings.Contains(o.Reason, reason) {
			t.Errorf("%s: %+v, want 1 attempt because %q", v, o, reason)
		}
	}
	await(t, "all records are done", func() bool { return c.Stats().Records == 0 && c.Stats().Handled == 21 })
	mu.Lock()
	for v, topics := range want {
		if !slices.Equal(tries[v], topics) {
			t.Errorf("%s was tried in %v, want %v", v, tries[v], topics)
		}
	}
	for _, v := range []string{"never", "second tier"} {
		for i, tier := range tiers {
			if waited := times[v][3+i].Sub(times[v][2+i]); waited < tier.Delay-10*time.Millisecond {
				t.Errorf("%s came again after %v, before the %v of its tier", v, waited, tier.Delay)
			}
		}
	}
	mu.Unlock()
	s := c.Stats()
	if s.DeadLettered != 4 || s.Retried != 8 || s.Delayed != 5 || s.Failed != 17 {
		t.Errorf("counts %+v", s.Counts)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if n := k.committed(topic, topic); n != 8 {
		t.Errorf("%d records are committed, want 8", n)
	}
}

// inPlace keeps the order of a key while its first record fails, and goes on with
// other keys.
func inPlace(t *testing.T, k *cluster) {
	topic := k.topic("in-place", 1)
	var mu sync.Mutex
	var order []string
	healed := false
	c := k.run(kafka.Config{
		Topics: []string{topic}, Exhausted: kafka.Block,
		Retry: kafka.Retry{Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond},
		Handle: func(_ context.Context, r *kgo.Record) error {
			mu.Lock()
			defer mu.Unlock()
			if string(r.Value) == "a1" && !healed {
				return errPartner
			}
			order = append(order, string(r.Value))
			return nil
		},
	})
	for _, v := range []string{"a1", "a2", "b1", "a3", "b2"} {
		k.produce(&kgo.Record{Topic: topic, Key: []byte(v[:1]), Value: []byte(v)})
	}
	await(t, "the other key is done and the first has failed often", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(order, []string{"b1", "b2"}) && c.Stats().Retried > 10
	})
	if n := k.committed(topic, topic); n > 0 {
		t.Errorf("offset %d is committed, although the first record is not done", n)
	}
	mu.Lock()
	healed = true
	mu.Unlock()
	await(t, "all is done", func() bool { return c.Stats().Records == 0 })
	if want := []string{"b1", "b2", "a1", "a2", "a3"}; !slices.Equal(order, want) {
		t.Errorf("handled in the order %v, want %v", order, want)
	}
}

// letterTooLarge has a dead-letter topic that takes less than the topic: where the
// record was must be told all the same.
func letterTooLarge(t *testing.T, k *cluster) {
	topic, dead := k.topic("large", 1), k.topic("large.dead", 1, "max.message.bytes", "2000")
	c := k.run(kafka.Config{
		Topics: []string{topic}, DeadLetter: dead, Retry: kafka.Retry{Backoff: time.Millisecond},
		Handle: func(context.Context, *kgo.Record) error { return errPartner },
	})
	for i, r := range []*kgo.Record{
		{Topic: topic, Key: []byte("k"), Value: noise(5000)},
		{Topic: topic, Key: noise(5000), Value: []byte("v")},
		{Topic: topic, Key: []byte("k"), Value: []byte("small")},
	} {
		k.produce(r)
		await(t, "the record is done", func() bool { return c.Stats().DeadLettered == uint64(i)+1 })
	}
	letters := k.read(dead, 3)
	for _, r := range letters {
		o, _ := kafka.OriginOf(r)
		want := []int{5000, 1, 0}[o.Offset]
		if o.Omitted != want || len(r.Value) > 0 != (o.Offset == 2) {
			t.Errorf("offset %d: %d bytes are omitted, %d bytes of value", o.Offset, o.Omitted, len(r.Value))
		}
	}
}

// lettersTooLargeTogether has letters that the topic takes one by one, and one that it does not
// take, in one batch: only that one loses its value.
func lettersTooLargeTogether(t *testing.T, k *cluster) {
	topic, dead := k.topic("together", 1), k.topic("together.dead", 1, "max.message.bytes", "2000")
	const count = 6
	var failing sync.WaitGroup
	failing.Add(count)
	c := k.run(kafka.Config{
		Topics: []string{topic}, DeadLetter: dead, Order: kafka.Unordered,
		Retry: kafka.Retry{Backoff: time.Millisecond},
		// All letters are produced within the time for which the client gathers a batch.
		Options: []kgo.Opt{kgo.ProducerLinger(time.Second)},
		Handle: func(context.Context, *kgo.Record) error {
			failing.Done()
			failing.Wait()
			return kafka.Permanent(errPartner)
		},
	})
	var records []*kgo.Record
	for i := range count {
		size := 1000
		if i == 2 {
			size = 5000
		}
		records = append(records, &kgo.Record{Topic: topic, Value: noise(size)})
	}
	k.produce(records...)
	for _, r := range k.read(dead, count) {
		o, _ := kafka.OriginOf(r)
		if o.Offset == 2 {
			if o.Omitted != 5000 || len(r.Value) > 0 {
				t.Errorf("the large one: %d bytes are omitted, %d bytes of value", o.Omitted, len(r.Value))
			}
		} else if o.Omitted != 0 || !bytes.Equal(r.Value, records[o.Offset].Value) {
			t.Errorf("offset %d: %d bytes are omitted, %d bytes of value", o.Offset, o.Omitted, len(r.Value))
		}
	}
	await(t, "all records are done", func() bool { return c.Stats().Records == 0 })
	if s := c.Stats(); s.DeadLettered != count {
		t.Errorf("%d dead letters, want %d", s.DeadLettered, count)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

func discard(t *testing.T, k *cluster) {
	topic := k.topic("discard", 1)
	discarded := make(chan error, 1)
	k.run(kafka.Config{
		Topics: []string{topic}, Exhausted: kafka.Discard,
		Handle: func(context.Context, *kgo.Record) error { return errPartner },
		Hooks:  kafka.Hooks{Discarded: func(_ *kgo.Record, err error) { discarded <- err }},
	})
	k.produce(record(topic, 0, "k", 1))
	if err := <-discarded; !errors.Is(err, errPartner) {
		t.Errorf("discarded because of %v", err)
	}
	await(t, "it is committed", func() bool { return k.committed(topic, topic) == 1 })
}
