package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
)

func valid() Config {
	return Config{
		Broker:     Broker{URLs: []string{"amqp://guest:guest@127.0.0.1/"}},
		Queue:      Queue{Name: "orders"},
		Handle:     func(context.Context, *amqp.Delivery) error { return nil },
		DeadLetter: Queue{Name: "orders.dead"},
	}
}

func TestInvalid(t *testing.T) {
	if _, err := New(valid()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(c *Config)
		fields []string
	}{
		"no address":             {func(c *Config) { c.Broker.URLs = nil }, []string{"broker.urls"}},
		"no such scheme":         {func(c *Config) { c.Broker.URLs = []string{"http://127.0.0.1"} }, []string{"broker.urls[0]"}},
		"heartbeat":              {func(c *Config) { c.Broker.Heartbeat = time.Millisecond }, []string{"broker.heartbeat"}},
		"timeout of the broker":  {func(c *Config) { c.Broker.Timeout = -1 }, []string{"broker.timeout"}},
		"no queue":               {func(c *Config) { c.Queue.Name = "" }, []string{"queue.name"}},
		"long name":              {func(c *Config) { c.Queue.Name = strings.Repeat("x", 256) }, []string{"queue.name"}},
		"limit of classic":       {func(c *Config) { c.Queue.Type, c.Queue.DeliveryLimit = Classic, 3 }, []string{"queue.delivery_limit"}},
		"half a millisecond":     {func(c *Config) { c.Queue.TTL = time.Microsecond }, []string{"queue.ttl"}},
		"lengths":                {func(c *Config) { c.Queue.MaxLength, c.Queue.MaxBytes = -1, -1 }, []string{"queue.max_bytes", "queue.max_length"}},
		"no such type":           {func(c *Config) { c.Queue.Type, c.Queue.Overflow = 9, 9 }, []string{"queue.overflow", "queue.type"}},
		"argument":               {func(c *Config) { c.Queue.Arguments = amqp.Table{"x": struct{}{}} }, []string{"queue.arguments"}},
		"dead letters to itself": {func(c *Config) { c.DeadLetter.Name = "orders" }, []string{"dead_letter", "queue.dead_letter"}},
		"two dead-letter queues": {func(c *Config) { c.Queue.DeadLetter = "other" }, []string{"queue.dead_letter"}},
		"no dead letters":        {func(c *Config) { c.DeadLetter.Name = "" }, []string{"dead_letter"}},
		"setup":                  {func(c *Config) { c.Setup = 9 }, []string{"setup"}},
		"exchange":               {func(c *Config) { c.Exchanges = []Exchange{{}} }, []string{"exchanges[0].kind", "exchanges[0].name"}},
		"binding":                {func(c *Config) { c.Bindings = []Binding{{Key: strings.Repeat("x", 256)}} }, []string{"bindings[0].exchange", "bindings[0].key", "bindings[0].queue"}},
		"workers":                {func(c *Config) { c.Workers = -1 }, []string{"workers"}},
		"timeout":                {func(c *Config) { c.Timeout = -1 }, []string{"timeout"}},
		"hold":                   {func(c *Config) { c.Hold = -1 }, []string{"hold"}},
		"drain":                  {func(c *Config) { c.Drain = time.Hour }, []string{"drain"}},
		"prefetch":               {func(c *Config) { c.Prefetch = Prefetch{Min: 20, Max: 10} }, []string{"prefetch.min"}},
		"prefetch too large":     {func(c *Config) { c.Prefetch.Max = 1 << 20 }, []string{"prefetch.max"}},
		"prefetch bytes":         {func(c *Config) { c.Prefetch.MaxBytes = -1 }, []string{"prefetch.max_bytes"}},
		"prefetch every":         {func(c *Config) { c.Prefetch.Every = 1 }, []string{"prefetch.every"}},
		"single and tuned":       {func(c *Config) { c.Queue.SingleActive = true }, []string{"prefetch"}},
		"in place":               {func(c *Config) { c.Retry.InPlace = -1 }, []string{"retry.in_place"}},
		"backoff":                {func(c *Config) { c.Retry.Backoff, c.Retry.MaxBackoff = 2, 1 }, []string{"retry.max_backoff"}},
		"tier without delay":     {func(c *Config) { c.Retry.Tiers = []Tier{{}} }, []string{"retry.tiers[0].delay"}},
		"tier twice":             {func(c *Config) { c.Retry.Tiers = []Tier{{Delay: time.Second}, {Delay: time.Second}} }, []string{"retry.tiers[1].queue"}},
		"exhausted":              {func(c *Config) { c.Exhausted = 9 }, []string{"exhausted"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := valid()
			test.change(&c)
			_, err := New(c)
			invalid, ok := errors.AsType[*headgate.InvalidError](err)
			if !ok {
				t.Fatalf("error %v, want an InvalidError", err)
			}
			var fields []string
			for _, p := range invalid.Problems {
				fields = append(fields, p.Field)
			}
			slices.Sort(fields)
			if fields = slices.Compact(fields); !slices.Equal(fields, test.fields) {
				t.Errorf("problems with %v, want %v: %v", fields, test.fields, err)
			}
		})
	}
}

// TestSecret: no password is in an error.
func TestSecret(t *testing.T) {
	for _, address := range []string{"amqp://user:hunter2@127.0.0.1:port/", "http://user:hunter2@127.0.0.1", "amqp://user:hunter2@127.0.0.1/%zz", "amqp://user:hunter2@[::1/"} {
		c := valid()
		c.Broker.URLs = []string{address}
		if _, err := New(c); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error %v", address, err)
		}
	}
}

// TestConfigStays: what the caller hands in is not changed.
func TestConfigStays(t *testing.T) {
	c := valid()
	c.Retry.Tiers = []Tier{{Delay: time.Minute}}
	c.Broker.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	if _, err := New(c); err != nil {
		t.Fatal(err)
	}
	if c.Retry.Tiers[0].Queue != "" {
		t.Errorf("the name of the caller's tier became %q", c.Retry.Tiers[0].Queue)
	}
	c.complete()
	if got := c.topology().Queues[2]; got.Name != "orders.retry.1m0s" || got.DeadLetter != "orders" || got.TTL != time.Minute {
		t.Errorf("the tier is %+v", got)
	}
}
