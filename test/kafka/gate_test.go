package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/store/memory"
)

// rate has a partner that takes 50 records a second, and another one that takes any
// number: it must not wait for the first, whose last record is kept back until the other has all.
func rate(t *testing.T, k *cluster) {
	topic := k.topic("rate", 1)
	limiter := headgate.New(memory.New(), headgate.MustRule("partner", headgate.Sliding(50, time.Second)))
	unlimited, err := permits.New(permits.Config{Name: "all", Limit: 20, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	const slowly, quickly = 150, 2000
	var slow, fast atomic.Int32
	partner := &keyed{key: "slow", gate: flow.Rate("partner", limiter), may: func(admitted int) bool {
		return admitted < slowly-1 || fast.Load() == quickly
	}}
	gate := flow.Chain(unlimited, partner)
	k.run(kafka.Config{
		Topics: []string{topic}, Gate: gate,
		Request: func(r *kgo.Record) flow.Request { return flow.Request{Key: string(r.Headers[0].Value)} },
		Handle: func(_ context.Context, r *kgo.Record) error {
			if string(r.Headers[0].Value) == "fast" {
				fast.Add(1)
				return nil
			}
			slow.Add(1)
			return nil
		},
	})
	var records []*kgo.Record
	for i := range slowly + quickly {
		r, partner := record(topic, 0, fmt.Sprint(i), i), "fast"
		if i < slowly { // all of them come first
			partner = "slow"
		}
		r.Headers = []kgo.RecordHeader{{Key: "partner", Value: []byte(partner)}}
		records = append(records, r)
	}
	k.produce(records...)
	await(t, "the fast partner has all", func() bool { return fast.Load() == quickly })
	await(t, "the slow partner has all", func() bool { return slow.Load() == slowly })
	partner.mu.Lock()
	defer partner.mu.Unlock()
	if took, least := partner.last.Sub(partner.began), 1900*time.Millisecond; took < least {
		t.Errorf("%d records were admitted in %v, want %v at least", slowly, took, least)
	}
}

// keyed asks a gate for one key, and lets others in.
type keyed struct {
	key  string
	gate flow.Gate
	may  func(admitted int) bool // whether the gate is asked for one more

	mu          sync.Mutex
	admitted    int
	began, last time.Time // before the gate was asked first, and after it admitted the last
}

func (g *keyed) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.TryAcquire(ctx, r)
}

func (g *keyed) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	if r.Key != g.key {
		return flow.Permit{}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.IsZero() {
		g.began = time.Now()
	}
	if !g.may(g.admitted) {
		return flow.Permit{}, &flow.Rejection{Gate: "keyed", Reason: flow.ReasonRate, RetryAfter: 10 * time.Millisecond, Retry: true}
	}
	p, err := g.gate.TryAcquire(ctx, r)
	if err == nil {
		g.admitted++
		g.last = time.Now()
	}
	return p, err
}

// limited has gates of permits, fixed and adaptive: never more handlers than permits, all
// is done, and every permit is given back.
func limited(t *testing.T, k *cluster) {
	fixed, err := permits.New(permits.Config{Name: "fixed", Limit: 3, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	estimator, err := adaptive.NewKnee(adaptive.KneeConfig{Max: 30})
	if err != nil {
		t.Fatal(err)
	}
	moving := adaptive.New("adaptive", estimator)
	byKey, err := permits.New(permits.Config{Name: "by key", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, gate := range map[string]interface {
		flow.Gate
		Stats() flow.Stats
	}{"fixed": fixed, "adaptive": moving, "by-key": byKey} {
		t.Run(name, func(t *testing.T) {
			k := k.of(t)
			topic := k.topic("limited-"+name, 3)
			var running peak
			c := k.run(kafka.Config{
				Topics: []string{topic}, Gate: gate, Order: kafka.Unordered,
				Request: func(r *kgo.Record) flow.Request { return flow.Request{Key: string(r.Key)} },
				Handle: func(_ context.Context, r *kgo.Record) error {
					defer running.enter()()
					time.Sleep(100 * time.Microsecond)
					if r.Offset%10 == 0 {
						panic("now and then")
					}
					return nil
				},
				Exhausted: kafka.Discard,
			})
			var records []*kgo.Record
			for i := range 3000 {
				records = append(records, record(topic, int32(i%3), fmt.Sprint(i%5), i))
			}
			k.produce(records...)
			await(t, "all are done", func() bool { return k.committed(topic, topic) == 3000 })
			if err := c.end(); err != nil {
				t.Error(err)
			}
			if s := gate.Stats(); s.InUse != 0 || s.Admitted != 3000 {
				t.Errorf("the gate has %+v, want nothing in use and 3000 admitted", s)
			}
			if n := running.most.Load(); name == "fixed" && n > 3 || name == "by-key" && n > 5 {
				t.Errorf("%d handlers ran at a time", n)
			}
		})
	}
}

// behind sheds what is far behind, by each way, and keeps what must be kept.
func behind(t *testing.T, k *cluster) {
	side := k.topic("behind-side", 1)
	for name, b := range map[string]kafka.Behind{
		"skip":   {Lag: 500, Until: 100, Skip: true},
		"sample": {Lag: 500, Until: 100, Sample: 10},
		"topic":  {Lag: 500, Until: 100, Topic: side},
	} {
		t.Run(name, func(t *testing.T) {
			k := k.of(t)
			topic := k.topic("behind-"+name, 1)
			var records []*kgo.Record
			for i := range 1000 {
				records = append(records, record(topic, 0, fmt.Sprint(i%100), i))
			}
			k.produce(records...)
			b.Keep = func(r *kgo.Record) bool { return string(r.Key) == "7" }
			s := newSeen()
			c := k.run(kafka.Config{
				Topics: []string{topic}, Behind: b,
				Handle: func(_ context.Context, r *kgo.Record) error { s.add(r); return nil },
			})
			await(t, "all are done", func() bool { return k.committed(topic, topic) == 1000 })
			// The lag was 1000 to 101 for the first 900, of which 9 are kept.
			shed := 891
			if name == "sample" {
				shed -= 90
			}
			if st := c.Stats(); int(st.Skipped+st.Detoured) != shed || s.distinct() != 1000-shed {
				t.Errorf("%d were shed and %d handled, want %d and %d", st.Skipped+st.Detoured, s.distinct(), shed, 1000-shed)
			}
			if name == "topic" {
				for _, r := range k.read(side, shed) {
					if o, ok := kafka.OriginOf(r); !ok || o.Topic != topic || o.Attempts != 0 {
						t.Fatalf("origin %+v", o)
					}
				}
			}
		})
	}
}
