package consume

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// Exhausted says what happens to a message whose attempts have all failed.
type Exhausted uint8

// See the constants of the same names in contrib.
const (
	ToDeadLetter Exhausted = iota
	Block
	Discard
	Reject
)

// Config says how messages are handled. A consumer fills it with its own configuration, whose
// comments explain the fields.
type Config[M any] struct {
	// Broker begins the texts of errors, such as "kafka". Noun is what the broker calls a message,
	// and Place where messages are: "record" and "topic".
	Broker, Noun, Place string

	Handle        func(ctx context.Context, message M) error
	Timeout       time.Duration
	Workers       int
	Gate          flow.Gate
	Request       func(message M) flow.Request
	Outcome       func(err error) flow.Outcome
	InPlace       int
	Backoff       time.Duration
	MaxBackoff    time.Duration
	Tiers         []Tier
	DeadLetter    string
	Exhausted     Exhausted
	LastExhausted Exhausted // the last of those that the broker has
	Drain         time.Duration
	MaxWorkers    int
	MinDelay      time.Duration // of tiers
	Hooks         Hooks[M]
}

// Tier is a place where messages wait for their next try.
type Tier struct {
	Name  string
	Delay time.Duration
}

// Hooks are the hooks that all consumers have.
type Hooks[M any] struct {
	Error                   func(err error)
	Handled                 func(message M, err error, took time.Duration)
	Retried                 func(message M, tier string, delay time.Duration, err error)
	DeadLettered, Discarded func(message M, err error)
}

// Defaults and bounds of a Config.
const (
	DefaultWorkers = 64
	DefaultDrain   = 20 * time.Second

	maxDrain = 5 * time.Minute
)

// Complete sets the defaults.
func (c *Config[M]) Complete() {
	Or(&c.Workers, DefaultWorkers)
	Or(&c.Drain, DefaultDrain)
	Or(&c.Backoff, 100*time.Millisecond)
	Or(&c.MaxBackoff, max(10*time.Second, c.Backoff))
	if c.Outcome == nil {
		c.Outcome = flow.OutcomeOf
	}
	if c.Request == nil {
		c.Request = func(M) flow.Request { return flow.Request{} }
	}
}

// Validate checks a Config after Complete.
func (c *Config[M]) Validate(p *headgate.Problems) {
	if c.Handle == nil {
		p.Add("handle", "there is no function to handle %ss with", c.Noun)
	}
	if c.Timeout < 0 {
		p.Add("timeout", "the timeout is %v, must be 0 or more", c.Timeout)
	}
	Between(p, "workers", "the number of workers", int64(c.Workers), 1, int64(c.MaxWorkers))
	if c.Drain < 0 || c.Drain > maxDrain {
		p.Add("drain", "the time to drain is %v, must be more than 0 and at most %v", c.Drain, maxDrain)
	}
	if c.InPlace < 0 {
		p.Add("retry.in_place", "the number of tries in place is %d, must be 0 or more", c.InPlace)
	}
	if c.Backoff < 0 {
		p.Add("retry.backoff", "the backoff is %v, must be more than 0", c.Backoff)
	}
	if c.MaxBackoff < c.Backoff {
		p.Add("retry.max_backoff", "the longest backoff is %v, must be the first backoff (%v) or more", c.MaxBackoff, c.Backoff)
	}
	for i, tier := range c.Tiers {
		if tier.Delay < c.MinDelay {
			p.Add(fmt.Sprintf("retry.tiers[%d].delay", i), "the delay is %v, must be %v or more", tier.Delay, c.MinDelay)
		}
	}
	switch {
	case c.Exhausted > c.LastExhausted:
		p.Add("exhausted", "exhausted is %d, must be %d to %d", c.Exhausted, ToDeadLetter, c.LastExhausted)
	case c.Exhausted == ToDeadLetter && c.DeadLetter == "":
		p.Add("dead_letter", "there is no dead-letter %s: name one, or choose with exhausted what happens to %ss that fail", c.Place, c.Noun)
	}
}

// Places collects names of topics or queues by the fields that name them. A message must not return
// to where it has been, so each name may occur once.
type Places map[string]string

// Add adds a name, or a problem if another field has it already.
func (s Places) Add(p *headgate.Problems, field, what, name string) {
	if other, ok := s[name]; ok {
		p.Add(field, "the %s %q is also %s, must be another one", what, name, other)
		return
	}
	s[name] = field
}

// Or sets a value that is zero to its default.
func Or[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Between adds a problem for a number outside of its bounds.
func Between(p *headgate.Problems, field, what string, n, least, most int64) {
	if n < least || n > most {
		p.Add(field, "%s is %d, must be %d to %d", what, n, least, most)
	}
}
