package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of records in retry topics, dead-letter topics and side topics. Their values
// are text; times are RFC 3339 in UTC.
const (
	// HeaderTopic, HeaderPartition and HeaderOffset say where the record was first, and
	// HeaderTimestamp what its timestamp was there.
	HeaderTopic     = "headgate-topic"
	HeaderPartition = "headgate-partition"
	HeaderOffset    = "headgate-offset"
	HeaderTimestamp = "headgate-timestamp"
	// HeaderGroup is the consumer group that has sent it on.
	HeaderGroup = "headgate-group"
	// HeaderReason is the error of the last attempt, at most 1,000 bytes of it, or why it
	// was shed.
	HeaderReason = "headgate-reason"
	// HeaderAttempts is how often it was tried, in all topics together.
	HeaderAttempts = "headgate-attempts"
	// HeaderFailed is when it failed last.
	HeaderFailed = "headgate-failed"
	// HeaderDue is when it may be tried again: in retry topics only.
	HeaderDue = "headgate-due"
	// HeaderOmitted is how many bytes the value had, where record and headers together
	// were larger than the topic takes, and the value was left out.
	HeaderOmitted = "headgate-omitted"
)

const (
	headerPrefix = "headgate-"
	maxReason    = 1000
)

// Origin says where a record of a retry topic, dead-letter topic or side topic was first,
// and what has happened since.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Group     string
	Reason    string
	Attempts  int
	Failed    time.Time
	// Due is zero except in retry topics.
	Due time.Time
	// Omitted is how many bytes of a value were left out.
	Omitted int
}

// OriginOf reads the headers of a record. It is false if the record has none that make
// sense. Whoever may produce to the topic may have written them.
func OriginOf(r *kgo.Record) (Origin, bool) {
	var o Origin
	var err error
	failed := false
	number := func(text string, bits int) int64 {
		var n int64
		n, err = strconv.ParseInt(text, 10, bits)
		failed = failed || err != nil || n < 0
		return n
	}
	moment := func(text string) time.Time {
		var t time.Time
		t, err = time.Parse(time.RFC3339Nano, text)
		failed = failed || err != nil
		return t
	}
	found := false
	for _, h := range r.Headers {
		text := string(h.Value)
		switch h.Key {
		case HeaderTopic:
			o.Topic, found = text, text != ""
		case HeaderPartition:
			o.Partition = int32(number(text, 32))
		case HeaderOffset:
			o.Offset = number(text, 64)
		case HeaderTimestamp:
			o.Timestamp = moment(text)
		case HeaderGroup:
			o.Group = text
		case HeaderReason:
			o.Reason = text
		case HeaderAttempts:
			o.Attempts = int(number(text, 32))
		case HeaderFailed:
			o.Failed = moment(text)
		case HeaderDue:
			o.Due = moment(text)
		case HeaderOmitted:
			o.Omitted = int(number(text, 32))
		}
	}
	if !found || failed {
		return Origin{}, false
	}
	return o, true
}

// letter is the record to produce to a retry or dead-letter topic after an error. due is
// zero in the latter.
func (c *Consumer) letter(it *item, topic string, err error, due time.Time) *kgo.Record {
	r := it.record
	o, ok := OriginOf(r)
	if !ok || it.of.tier < 0 {
		o = Origin{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp}
	}
	letter := &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, headerPrefix) {
			letter.Headers = append(letter.Headers, h)
		}
	}
	add := func(key, value string) {
		letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	add(HeaderTopic, o.Topic)
	add(HeaderPartition, strconv.Itoa(int(o.Partition)))
	add(HeaderOffset, strconv.FormatInt(o.Offset, 10))
	add(HeaderTimestamp, o.Timestamp.UTC().Format(time.RFC3339Nano))
	add(HeaderGroup, c.config.Group)
	add(HeaderReason, shortened(err.Error()))
	add(HeaderAttempts, strconv.Itoa(o.Attempts+it.tries))
	add(HeaderFailed, time.Now().UTC().Format(time.RFC3339Nano))
	if o.Omitted > 0 {
		add(HeaderOmitted, strconv.Itoa(o.Omitted))
	}
	if !due.IsZero() {
		add(HeaderDue, due.UTC().Format(time.RFC3339Nano))
	}
	return letter
}

// shortened is at most maxReason bytes of a text, which a header must be able to hold.
func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// send has a letter produced in place of the item, which is done then. The caller holds
// the lock.
func (c *Consumer) send(it *item, letter *kgo.Record, sent func()) {
	it.letter, it.sent, it.tries, it.alone = letter, sent, 0, false
	c.submit(it)
}

// produced settles the production of a letter. Until it has succeeded the item is not
// done, and tries again: a record is never dropped because its letter cannot be written.
//
// A broker refuses a batch as a whole, so a letter that was refused as too large is produced alone
// before anything is left out of it: it may have shared its batch with a larger one.
func (c *Consumer) produced(it *item, err error) {
	switch {
	case err == nil:
		it.sent()
		c.done(it)
		return
	case it.of.ctx.Err() != nil:
		return
	case errors.Is(err, kerr.MessageTooLarge) && (!it.alone || shrink(it.letter)):
		it.alone = true
		c.submit(it)
		return
	}
	it.tries++
	c.trouble(fmt.Errorf("kafka: producing to %q: %w", it.letter.Topic, err))
	c.wait(it, c.backoff(it.tries))
}

// shrink leaves out the value of a letter that is too large, and if that was not enough
// the key and the headers that are not ours. Where the record was is still told, and it
// can be read from there. It reports whether there was anything to leave out.
func shrink(letter *kgo.Record) bool {
	if letter.Value != nil {
		letter.Headers = append(letter.Headers, kgo.RecordHeader{
			Key: HeaderOmitted, Value: []byte(strconv.Itoa(len(letter.Value))),
		})
		letter.Value = nil
		return true
	}
	before := len(letter.Headers)
	letter.Headers = slices.DeleteFunc(letter.Headers, func(h kgo.RecordHeader) bool {
		return !strings.HasPrefix(h.Key, headerPrefix)
	})
	smaller := letter.Key != nil || len(letter.Headers) < before
	letter.Key = nil
	return smaller
}

// produce writes the letter of an item and waits until the broker has it.
func (c *Consumer) produce(ctx context.Context, it *item) error {
	leave, err := c.batches[it.letter.Topic].enter(ctx, it.alone)
	if err != nil {
		return err
	}
	defer leave()
	// The client writes into the record that it is given.
	r := *it.letter
	return c.client.ProduceSync(ctx, &r).FirstErr()
}
