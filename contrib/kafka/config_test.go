package kafka_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/kafka"
)

func good() kafka.Config {
	return kafka.Config{
		Brokers: []string{"127.0.0.1:1"}, Group: "g", Topics: []string{"t"}, DeadLetter: "dead",
		Handle: func(context.Context, *kgo.Record) error { return nil },
	}
}

func TestConfig(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *kafka.Config)
		fields string // in order, with the numbers that their texts must have
	}{
		{"good", func(*kafka.Config) {}, ""},
		{"everything", func(c *kafka.Config) {
			c.Gate, c.Workers, c.MaxBytes, c.MaxRecords = nil, 100_000, 1<<20, 10_000_000
			c.Pause = kafka.Pause{Records: 10, Bytes: 1 << 20, Age: time.Hour, Resume: 0.9, Dwell: time.Second, Every: time.Second}
			c.Behind = kafka.Behind{Lag: 1, Sample: 2}
			c.Retry = kafka.Retry{InPlace: 3, Backoff: time.Hour, Tiers: []kafka.Tier{{"r1", 100 * time.Millisecond}, {"r2", time.Hour}}}
		}, ""},
		{"nothing", func(c *kafka.Config) { *c = kafka.Config{} }, "brokers group topics handle dead_letter"},
		{"no way out", func(c *kafka.Config) { c.DeadLetter = "" }, "dead_letter"},
		{"two ways out", func(c *kafka.Config) { c.Exhausted = kafka.Block }, "dead_letter=dead"},
		{"unknown values", func(c *kafka.Config) { c.Order, c.Exhausted = 9, 9 }, "order=9 exhausted=9"},
		{"numbers", func(c *kafka.Config) {
			c.Workers, c.MaxBytes, c.MaxRecords = -1, 1000, 20_000_000
			c.Timeout, c.Drain, c.CommitEvery = -1, time.Hour, -1
		}, "max_bytes=1000 max_records=20000000 commit_every=-1 timeout=-1 workers=-1 drain=1h"},
		{"pause", func(c *kafka.Config) {
			c.Pause = kafka.Pause{Records: 10_001, Bytes: 1 << 40, Age: -1, Resume: 1, Dwell: time.Minute, Every: time.Second}
		}, "pause.records=10001 pause.bytes=1099511627776 pause.age=-1 pause.resume=1 pause.every=1s"},
		{"pause at no number", func(c *kafka.Config) { c.Pause.Resume = math.NaN() }, "pause.resume=NaN"},
		{"behind without a lag", func(c *kafka.Config) { c.Behind.Skip = true }, "behind.lag=0"},
		{"behind and no way", func(c *kafka.Config) { c.Behind.Lag = 5 }, "behind=0"},
		{"behind in two ways", func(c *kafka.Config) { c.Behind = kafka.Behind{Lag: 5, Skip: true, Topic: "side"} }, "behind=2"},
		{"behind without an end", func(c *kafka.Config) { c.Behind = kafka.Behind{Lag: 5, Until: 5, Skip: true} }, "behind.until=5"},
		{"sample of one", func(c *kafka.Config) { c.Behind = kafka.Behind{Lag: 5, Sample: 1} }, "behind.sample=1"},
		{"retry", func(c *kafka.Config) {
			c.Retry = kafka.Retry{InPlace: -1, Backoff: time.Minute, MaxBackoff: time.Second, Tiers: []kafka.Tier{{"r", time.Millisecond}}}
		}, "retry.in_place=-1 retry.max_backoff=1s retry.tiers[0].delay=1ms"},
		{"names", func(c *kafka.Config) { c.Topics = []string{"", "a b", strings.Repeat("x", 250), ".."} }, "topics[0] topics[1]=a topics[2]=249 topics[3]"},
		{"circles", func(c *kafka.Config) {
			c.Topics = []string{"t", "t"}
			c.Retry.Tiers = []kafka.Tier{{"t", time.Second}}
			c.Behind, c.DeadLetter = kafka.Behind{Lag: 5, Topic: "t"}, "t"
		}, "topics[1]=t retry.tiers[0].topic=t behind.topic=t dead_letter=t"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := good()
			tt.change(&config)
			_, err := kafka.New(config)
			if tt.fields == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			invalid, ok := errors.AsType[*headgate.InvalidError](err)
			if !ok {
				t.Fatalf("New returned %v", err)
			}
			var got []string
			for i, p := range invalid.Problems {
				want := ""
				if all := strings.Fields(tt.fields); i < len(all) {
					_, want, _ = strings.Cut(all[i], "=")
				}
				if !strings.Contains(p.Text, want) {
					t.Errorf("the text of %s is %q, want %q in it", p.Field, p.Text, want)
				}
				got = append(got, p.Field)
			}
			var want []string
			for field := range strings.FieldsSeq(tt.fields) {
				name, _, _ := strings.Cut(field, "=")
				want = append(want, name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("problems with %v, want %v:\n%v", got, want, err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	for _, err := range []error{kafka.Permanent(cause), kafka.Later(cause, time.Second), &kafka.PanicError{Value: cause}} {
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "cause") {
			t.Errorf("%v hides its cause", err)
		}
	}
	if kafka.Permanent(nil) != nil || kafka.Later(nil, 1) != nil {
		t.Error("no error became one")
	}
}

func FuzzOriginOf(f *testing.F) {
	f.Add("orders", "3", "17", "2026-01-02T03:04:05.678Z", "2")
	f.Add("", "-1", "99999999999999999999", "yesterday", "x")
	f.Fuzz(func(t *testing.T, topic, partition, offset, at, attempts string) {
		r := &kgo.Record{Headers: []kgo.RecordHeader{
			{Key: kafka.HeaderTopic, Value: []byte(topic)},
			{Key: kafka.HeaderPartition, Value: []byte(partition)},
			{Key: kafka.HeaderOffset, Value: []byte(offset)},
			{Key: kafka.HeaderTimestamp, Value: []byte(at)},
			{Key: kafka.HeaderAttempts, Value: []byte(attempts)},
		}}
		o, ok := kafka.OriginOf(r)
		if ok && (o.Topic == "" || o.Partition < 0 || o.Offset < 0 || o.Attempts < 0) {
			t.Errorf("origin %+v", o)
		}
		if !ok && o != (kafka.Origin{}) {
			t.Errorf("no origin, but %+v", o)
		}
	})
}
