package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/consume"
)

// Order says which records must be handled one after the other.
type Order uint8

const (
	// ByKey handles records of a partition that have the same key in the order of
	// their offsets, and others side by side. Records without a key (a null key, not
	// an empty one) have no order. It is the zero Order.
	ByKey Order = iota
	// ByPartition handles the records of a partition in the order of their offsets.
	ByPartition
	// Unordered may handle records in any order.
	Unordered
)

// Exhausted says what happens to a record whose attempts have all failed.
type Exhausted uint8

const (
	// ToDeadLetter produces the record to Config.DeadLetter. It is the zero Exhausted.
	ToDeadLetter = Exhausted(consume.ToDeadLetter)
	// Block keeps trying for as long as the partition is assigned. Records that must follow in
	// order wait, and the partition is paused sooner or later.
	Block = Exhausted(consume.Block)
	// Discard counts the record as done, and calls Hooks.Discarded.
	Discard = Exhausted(consume.Discard)
)

// Config says what to consume and how. New returns an error for an invalid Config.
type Config struct {
	// Brokers are the addresses of some brokers, such as "127.0.0.1:9092". The client learns the
	// others from them.
	Brokers []string
	// Group is the consumer group.
	Group string
	// Topics are the topics to consume. They must exist. Those of Retry.Tiers are
	// consumed as well, and are not listed here.
	Topics []string
	// Options are further options of the client, such as TLS, SASL, balancers, and the offsets to
	// begin at. The Consumer itself sets the callbacks of the assignment, commits, and the sizes of
	// fetches, and overrides these options.
	Options []kgo.Opt

	// Handle does the work for one record. Several calls run at a time. The record is done when
	// Handle returns nil. An error or a panic is a failed attempt. The context ends when Timeout
	// has passed. It also ends when the record must be given up, because its partition has gone to
	// another consumer or because Run has to end; the result of Handle is then ignored.
	//
	// A record may be handled more than once: see the package comment.
	Handle func(ctx context.Context, r *kgo.Record) error
	// Timeout ends the context of each call of Handle. Zero means no limit.
	Timeout time.Duration
	// Order says which records are handled one after the other.
	Order Order

	// Workers is how many records may be handled at a time, 1 to 100,000. Zero means 64.
	Workers int
	// Gate decides whether a record may be handled now: by a rate, by permits, by an adaptive
	// limit, or by a chain of them. Records that it refuses wait, and records with another
	// Request.Key go first. The Consumer only calls TryAcquire, so a queue in the gate is not used.
	// A nil Gate admits everything.
	Gate flow.Gate
	// Request returns the request to the gate for a record. Records whose requests have the same
	// Key wait for each other at the gate. Nil means the zero Request for all records.
	Request func(r *kgo.Record) flow.Request
	// Outcome returns the outcome of an attempt for the gate, given its error. Nil means
	// flow.OutcomeOf.
	Outcome func(err error) flow.Outcome

	// MaxBytes bounds the memory for records that are being fetched, wait, or are being handled: 1
	// MiB or more. Each record counts with its key, value and headers, plus 256 bytes. Zero means
	// 64 MiB. A single batch that is larger is still handled, alone.
	MaxBytes int64
	// MaxRecords is how many records may wait or be handled, 1 to 10,000,000. Zero means 10,000. A
	// record that is done counts until all records before it in its partition are done.
	MaxRecords int
	// Pause says when partitions are paused, so that they leave room for others.
	Pause Pause
	// Behind sheds records of partitions that are too far behind. The zero Behind sheds nothing.
	Behind Behind

	// Retry says how often and when to try again.
	Retry Retry
	// DeadLetter is the topic for records whose attempts have all failed. It must exist.
	DeadLetter string
	// Exhausted says what happens to records whose attempts have all failed. ToDeadLetter, the zero
	// value, needs DeadLetter.
	Exhausted Exhausted

	// Drain is how long records that are being handled may take when their partition is revoked or
	// Run ends. After that their contexts end. Zero means 20 seconds; the maximum is 5 minutes. The
	// group's rebalance timeout is twice that, at least a minute.
	Drain time.Duration
	// CommitEvery is the time between commits. Zero means 1 second.
	CommitEvery time.Duration
	// Hooks are called when something happens.
	Hooks Hooks
}

// Pause says when a partition is paused. A paused partition is not fetched until it has worked off
// enough records. A partition is paused when it reaches any of the thresholds, and resumed when it
// is at or below Resume of all of them. Pauses begin at least Every apart, so thresholds that are
// too low do not pause and resume it all the time. In between, only MaxBytes and MaxRecords bound
// it, together with all other partitions.
//
// There is no threshold for lag: a paused partition falls further behind, and would stay
// paused. See Behind.
type Pause struct {
	// Records is how many records of one partition may wait or be handled, and Bytes is their size,
	// counted as in MaxBytes. Zero means as much as is free: a partition is paused when it holds as
	// much as is left for all others.
	Records int
	Bytes   int64
	// Age is how long the oldest record may have been waiting or handled in this
	// process. Zero means no bound.
	Age time.Duration
	// Resume is the part of a threshold, above 0 and below 1, at which to resume. Zero
	// means 0.5.
	Resume float64
	// Dwell is the shortest duration of a pause. Zero means 1 second.
	Dwell time.Duration
	// Every is the shortest time between the beginnings of two pauses of a partition. Zero means 30
	// seconds.
	Every time.Duration
}

// Behind says what to do with records of a partition that is too far behind. Exactly one of Skip,
// Sample and Topic must be set.
type Behind struct {
	// Lag is the number of records behind the end of the partition at which shedding begins, and
	// Until the number at which it ends. Until must be less than Lag; zero means half of it.
	Lag, Until int64
	// Skip counts records as done without handling them.
	Skip bool
	// Sample handles one of every Sample records, 2 or more, and skips the others.
	Sample int
	// Topic is the topic to which records are produced instead of being handled. It must exist.
	Topic string
	// Keep reports whether a record is handled in any case. Nil keeps none.
	Keep func(r *kgo.Record) bool
}

// Retry says how often and when to try a record again.
type Retry struct {
	// InPlace is how often to try again here, keeping the order, before the record goes to the
	// first tier. Without tiers, the record is then exhausted. It does not apply to records from
	// tiers.
	InPlace int
	// Backoff is the wait before the first retry. It doubles with each retry, up to MaxBackoff, and
	// is shortened by up to a half at random. Zero means 100 ms and 10 s. An error that says when
	// to try again (see Later) can make the wait longer, but not shorter.
	Backoff, MaxBackoff time.Duration
	// Tiers are retry topics, in the order in which a record passes them. The order of
	// records is not kept there.
	Tiers []Tier
}

// Tier is a retry topic. If two groups consume the same topic, each needs its own tiers.
type Tier struct {
	// Topic must exist.
	Topic string
	// Delay is how long a record waits in the topic, 100 ms or more.
	Delay time.Duration
}

// Defaults and bounds of a Config.
const (
	DefaultWorkers    = consume.DefaultWorkers
	DefaultMaxBytes   = 64 << 20
	DefaultMaxRecords = 10_000
	DefaultDrain      = consume.DefaultDrain

	minBytes   = 1 << 20
	maxWorkers = 100_000
	maxRecords = 10_000_000
	minDelay   = 100 * time.Millisecond
	maxName    = 249 // the longest name of a topic that Kafka allows
)

// complete sets the defaults.
func (c *Config) complete() {
	consume.Or(&c.MaxBytes, DefaultMaxBytes)
	consume.Or(&c.MaxRecords, DefaultMaxRecords)
	consume.Or(&c.CommitEvery, time.Second)
	consume.Or(&c.Pause.Resume, 0.5)
	consume.Or(&c.Pause.Dwell, time.Second)
	consume.Or(&c.Pause.Every, 30*time.Second)
	consume.Or(&c.Behind.Until, c.Behind.Lag/2)
}

// handling returns what the engine needs to know, with the defaults.
func (c *Config) handling() consume.Config[*kgo.Record] {
	h := consume.Config[*kgo.Record]{
		Broker: "kafka", Noun: "record", Place: "topic", MaxWorkers: maxWorkers, MinDelay: minDelay, LastExhausted: consume.Discard,
		Handle: c.Handle, Timeout: c.Timeout, Workers: c.Workers, Gate: c.Gate, Request: c.Request, Outcome: c.Outcome,
		InPlace: c.Retry.InPlace, Backoff: c.Retry.Backoff, MaxBackoff: c.Retry.MaxBackoff,
		DeadLetter: c.DeadLetter, Exhausted: consume.Exhausted(c.Exhausted), Drain: c.Drain,
		Hooks: consume.Hooks[*kgo.Record]{
			Error: c.Hooks.Error, Handled: c.Hooks.Handled, Retried: c.Hooks.Retried,
			DeadLettered: c.Hooks.DeadLettered, Discarded: c.Hooks.Discarded,
		},
	}
	for _, tier := range c.Retry.Tiers {
		h.Tiers = append(h.Tiers, consume.Tier{Name: tier.Topic, Delay: tier.Delay})
	}
	h.Complete()
	return h
}

// validate checks a Config after complete.
func (c *Config) validate(handling *consume.Config[*kgo.Record]) error {
	var p headgate.Problems
	if len(c.Brokers) == 0 {
		p.Add("brokers", "there are no brokers, must be at least one address")
	}
	if c.Group == "" {
		p.Add("group", "the group is empty, must be the name of a consumer group")
	}
	if c.Order > Unordered {
		p.Add("order", "the order is %d, must be %d to %d", c.Order, ByKey, Unordered)
	}
	if c.MaxBytes < minBytes {
		p.Add("max_bytes", "the memory is %d bytes, must be %d or more", c.MaxBytes, minBytes)
	}
	consume.Between(&p, "max_records", "the number of records", int64(c.MaxRecords), 1, maxRecords)
	if c.CommitEvery < 0 {
		p.Add("commit_every", "the time between commits is %v, must be more than 0", c.CommitEvery)
	}
	c.Pause.validate(&p, c)
	c.Behind.validate(&p)
	c.validateTopics(&p)
	handling.Validate(&p)
	return p.Err("kafka")
}

func (s *Pause) validate(p *headgate.Problems, c *Config) {
	if s.Records < 0 || s.Records > c.MaxRecords {
		p.Add("pause.records", "a partition is paused at %d records, must be 1 to max_records (%d), or 0 for as many as are free",
			s.Records, c.MaxRecords)
	}
	if s.Bytes < 0 || s.Bytes > c.MaxBytes {
		p.Add("pause.bytes", "a partition is paused at %d bytes, must be 1 to max_bytes (%d), or 0 for as many as are free",
			s.Bytes, c.MaxBytes)
	}
	if s.Age < 0 {
		p.Add("pause.age", "a partition is paused at an age of %v, must be 0 or more", s.Age)
	}
	if !(s.Resume > 0 && s.Resume < 1) { // NaN too
		p.Add("pause.resume", "a partition is resumed at %v of a threshold, must be above 0 and below 1", s.Resume)
	}
	if s.Dwell < 0 {
		p.Add("pause.dwell", "the shortest pause is %v, must be more than 0", s.Dwell)
	}
	if s.Every < s.Dwell {
		p.Add("pause.every", "a partition is paused every %v at most, must be pause.dwell (%v) or more", s.Every, s.Dwell)
	}
}

func (b *Behind) validate(p *headgate.Problems) {
	ways := 0
	for _, chosen := range []bool{b.Skip, b.Sample != 0, b.Topic != ""} {
		if chosen {
			ways++
		}
	}
	switch {
	case b.Lag < 0:
		p.Add("behind.lag", "the lag is %d, must be 1 or more, or 0 to shed nothing", b.Lag)
	case b.Lag == 0 && ways > 0:
		p.Add("behind.lag", "the lag is 0, but behind says what to shed: it must be 1 or more")
	case b.Lag > 0 && ways != 1:
		p.Add("behind", "%d of skip, sample and topic are set, must be exactly 1", ways)
	}
	if b.Sample < 0 || b.Sample == 1 {
		p.Add("behind.sample", "one record of %d is handled, must be one of 2 or more", b.Sample)
	}
	if b.Lag > 0 && (b.Until < 0 || b.Until >= b.Lag) {
		p.Add("behind.until", "shedding ends at a lag of %d, must be 0 or more and below the lag where it begins (%d)", b.Until, b.Lag)
	}
}

// topic is a topic that must exist, and the field that names it.
type topic struct{ field, name string }

// topics returns all topics that must exist.
func (c *Config) topics() []topic {
	var all []topic
	for i, name := range c.Topics {
		all = append(all, topic{fmt.Sprintf("topics[%d]", i), name})
	}
	for i, tier := range c.Retry.Tiers {
		all = append(all, topic{fmt.Sprintf("retry.tiers[%d].topic", i), tier.Topic})
	}
	if c.Behind.Topic != "" {
		all = append(all, topic{"behind.topic", c.Behind.Topic})
	}
	if c.DeadLetter != "" {
		all = append(all, topic{"dead_letter", c.DeadLetter})
	}
	return all
}

func (c *Config) validateTopics(p *headgate.Problems) {
	used := make(consume.Places)
	for _, t := range c.topics() {
		if t.name == "" || len(t.name) > maxName || t.name == "." || t.name == ".." || strings.ContainsFunc(t.name, notInName) {
			p.Add(t.field, "the topic is %q, must be 1 to %d of letters, digits, \".\", \"_\" and \"-\"", t.name, maxName)
		} else {
			used.Add(p, t.field, "topic", t.name)
		}
	}
	if len(c.Topics) == 0 {
		p.Add("topics", "there are no topics, must be at least one")
	}
	if c.Exhausted != ToDeadLetter && c.Exhausted <= Discard && c.DeadLetter != "" {
		p.Add("dead_letter", "there is a dead-letter topic %q, but exhausted says that records do not go there", c.DeadLetter)
	}
}

// notInName reports whether Kafka does not allow a character in the name of a topic.
func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
}

// ErrAbandoned is wrapped by the error that Run returns if records were still being handled after
// the time to drain, although their contexts had ended. These records are not committed.
var ErrAbandoned = errors.New("kafka: handlers did not end in time")

// PanicError is the error for a panic of Handle. The record is not tried again.
type PanicError = consume.PanicError

// Permanent marks an error for which trying again is of no use: the record is exhausted at once.
// Permanent(nil) is nil.
func Permanent(err error) error { return consume.Permanent(err) }

// Later marks an error after which the next try in place must wait for at least d, such as the time
// of a Retry-After header. Later(nil, d) is nil. A [*flow.Rejection] or a [*headgate.DeniedError]
// in an error that Handle returns has the same effect.
func Later(err error, d time.Duration) error { return consume.Later(err, d) }
