package rabbitmq

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/internal/consume"
)

// TestOrigin: what was written is read, and what makes no sense is not.
func TestOrigin(t *testing.T) {
	good := func() amqp.Table {
		return amqp.Table{
			HeaderQueue: "orders", HeaderExchange: "shop", HeaderKey: "new", HeaderReason: "down",
			HeaderAttempts: int64(3), HeaderFailed: "2026-11-22T12:00:00Z", HeaderTier: int64(2), HeaderDue: "2026-11-22T12:01:00Z",
		}
	}
	if o, ok := OriginOf(good()); !ok || o.Queue != "orders" || o.Attempts != 3 || o.Tier != 2 || o.Due.Sub(o.Failed) != time.Minute {
		t.Errorf("%+v, %v", o, ok)
	}
	died := amqp.Table{"count": int64(1), "reason": "delivery_limit", "queue": "orders", "exchange": "", "routing-keys": []any{"orders"}, "time": time.Unix(5, 0)}
	if o, ok := OriginOf(amqp.Table{"x-death": []any{died}, "x-delivery-count": int64(21)}); !ok || o.Reason != "delivery_limit" || o.Attempts != 21 || o.Key != "orders" || !o.Failed.Equal(time.Unix(5, 0)) {
		t.Errorf("%+v, %v", o, ok)
	}
	// What the broker has done after us counts.
	both := good()
	both["x-death"] = []any{died}
	if o, ok := OriginOf(both); !ok || o.Reason != "delivery_limit" || o.Attempts != 3 {
		t.Errorf("%+v, %v", o, ok)
	}
	for name, change := range map[string]func(amqp.Table){
		"no queue":            func(h amqp.Table) { delete(h, HeaderQueue) },
		"attempts as text":    func(h amqp.Table) { h[HeaderAttempts] = "3" },
		"negative attempts":   func(h amqp.Table) { h[HeaderAttempts] = int64(-1) },
		"no tier":             func(h amqp.Table) { delete(h, HeaderTier) },
		"huge tier":           func(h amqp.Table) { h[HeaderTier] = int64(1) << 40 },
		"failed at no time":   func(h amqp.Table) { h[HeaderFailed] = "yesterday" },
		"due at no time":      func(h amqp.Table) { h[HeaderDue] = int64(5) },
		"queue is no text":    func(h amqp.Table) { h[HeaderQueue] = int64(5) },
		"deaths are no table": func(h amqp.Table) { clear(h); h["x-death"] = []any{"x"} },
	} {
		h := good()
		change(h)
		if o, ok := OriginOf(h); ok {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestLetter: a letter is the message without what would send it elsewhere.
func TestLetter(t *testing.T) {
	config := valid()
	config.Retry.Tiers = []Tier{{Delay: time.Minute}}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	it := &item{attempts: 5, Item: consume.Item[*amqp.Delivery]{Message: &amqp.Delivery{
		Headers:  amqp.Table{"tenant": "acme", "CC": []any{"x"}, "x-death": []any{}, "headgate-reason": "old", HeaderSent: int64(7)},
		Exchange: "shop", RoutingKey: "new", UserId: "joe", Expiration: "5", MessageId: "m", Priority: 3, Body: []byte("b"),
	}}}
	m := c.letter(it, consume.Letter{To: "orders.dead", Reason: "down", Attempts: 2, Failed: time.Now()})
	if m.Key != "orders.dead" || m.Exchange != "" || m.UserId != "" || m.Expiration != "" || m.MessageId != "m" || m.Priority != 3 || !bytes.Equal(m.Body, it.Message.Body) {
		t.Errorf("%+v", m)
	}
	if m.Headers["CC"] != nil || m.Headers["x-death"] != nil || m.Headers["tenant"] != "acme" || m.Headers[HeaderSent] != int64(7) {
		t.Errorf("%v", m.Headers)
	}
	o, ok := OriginOf(m.Headers)
	if !ok || o.Attempts != 7 || o.Exchange != "shop" || o.Key != "new" || o.Queue != "orders" || !o.Due.IsZero() || o.Reason != "down" {
		t.Errorf("%+v, %v", o, ok)
	}
	if err := m.validate(); err != nil {
		t.Error(err)
	}
}

// FuzzDifference: whatever a broker says, it is read or left.
func FuzzDifference(f *testing.F) {
	f.Add("PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received the value '20' of type 'signedint' but current is the value '10' of type 'signedint'")
	f.Add("PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'e' in vhost '/': received 'true' but current is 'false'")
	f.Add("inequivalent arg '' for  in vhost '': received  but current is ")
	f.Fuzz(func(t *testing.T, reason string) {
		property, described, found := difference(reason)
		for _, part := range []string{property, described, found} {
			if !strings.Contains(reason, part) {
				t.Errorf("%q is not in %q", part, reason)
			}
		}
	})
}

func TestDifference(t *testing.T) {
	property, described, found := difference("PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'e' in vhost '/': received 'true' but current is 'false'")
	if property != "durable" || described != "'true'" || found != "'false'" {
		t.Errorf("%q, %q, %q", property, described, found)
	}
}

// TestMismatchOfDeliveries: the broker's number is not the one that the user has set.
func TestMismatchOfDeliveries(t *testing.T) {
	e := &MismatchError{Kind: "queue", Name: "q", Property: "x-delivery-limit", Described: "'8'", Found: "'2'"}
	const want = `rabbitmq: x-delivery-limit, one less than DeliveryLimit, of the queue "q" is '8' here, and '2' on the broker`
	if got := e.Error(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
