package kafka

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/headgate/headgate/internal/consume"
)

// Headers of records in retry topics, dead-letter topics and side topics. Their values
// are text; times are RFC 3339 in UTC.
const (
	// HeaderTopic, HeaderPartition and HeaderOffset say where the record was first. HeaderTimestamp
	// is its timestamp there.
	HeaderTopic     = "headgate-topic"
	HeaderPartition = "headgate-partition"
	HeaderOffset    = "headgate-offset"
	HeaderTimestamp = "headgate-timestamp"
	// HeaderGroup is the consumer group that has forwarded it.
	HeaderGroup = "headgate-group"
	// HeaderReason is the error of the last attempt, at most 1,000 bytes of it, or the reason for
	// shedding the record.
	HeaderReason = consume.HeaderReason
	// HeaderAttempts is how often the record was tried, in all topics together.
	HeaderAttempts = consume.HeaderAttempts
	// HeaderFailed is when the last attempt failed.
	HeaderFailed = consume.HeaderFailed
	// HeaderDue is when the record may be tried again. Only retry topics have it.
	HeaderDue = consume.HeaderDue
	// HeaderOmitted is the size of the value in bytes if the value was left out, because record and
	// headers together were larger than the topic allows.
	HeaderOmitted = "headgate-omitted"
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
	// Omitted is the size in bytes of a value that was left out.
	Omitted int
}

// OriginOf reads the headers of a record. It returns false if they are missing or invalid. Anybody
// who may produce to the topic may have written them.
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

// letter returns a function that produces a letter for a record.
func (c *Consumer) letter(it *item, l consume.Letter) func(ctx context.Context) error {
	r := it.Message
	o, ok := OriginOf(r)
	if !ok || it.Tier == 0 {
		o = Origin{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp}
	}
	letter := &kgo.Record{Topic: l.To, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, consume.HeaderPrefix) {
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
	add(HeaderReason, l.Reason)
	add(HeaderAttempts, strconv.Itoa(o.Attempts+l.Attempts))
	add(HeaderFailed, l.Failed.UTC().Format(time.RFC3339Nano))
	if o.Omitted > 0 {
		add(HeaderOmitted, strconv.Itoa(o.Omitted))
	}
	if !l.Due.IsZero() {
		add(HeaderDue, l.Due.UTC().Format(time.RFC3339Nano))
	}
	return func(ctx context.Context) error { return c.produce(ctx, letter) }
}

// produce writes a letter, and waits until the broker has confirmed it.
//
// A broker refuses a batch as a whole. So a letter that was refused as too large is produced alone
// before anything is left out of it, because it may have shared its batch with a larger one.
func (c *Consumer) produce(ctx context.Context, letter *kgo.Record) error {
	err := c.produceBeside(ctx, letter, 1)
	for errors.Is(err, kerr.MessageTooLarge) {
		err = c.produceBeside(ctx, letter, c.letters[letter.Topic].most)
		if errors.Is(err, kerr.MessageTooLarge) && !shrink(letter) {
			return err
		}
	}
	return err
}

// lettersOf bounds the letters that are being produced to a topic. The client puts letters that are
// produced at the same time into one batch. A letter that must be alone in its batch takes
// the whole bound, and later letters wait behind it.
type lettersOf struct {
	*semaphore.Weighted
	most int64
}

func (c *Consumer) produceBeside(ctx context.Context, letter *kgo.Record, weight int64) error {
	room := c.letters[letter.Topic]
	if err := room.Acquire(ctx, weight); err != nil {
		return err
	}
	defer room.Release(weight)
	r := *letter // a copy, because the client writes into the record
	return c.client.ProduceSync(ctx, &r).FirstErr()
}

// shrink leaves out the value of a letter that is too large. If that was not enough, it leaves out
// the key and the headers that are not ours. The letter still says where the record was, so it can
// be read from there. shrink reports whether there was anything to leave out.
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
		return !strings.HasPrefix(h.Key, consume.HeaderPrefix)
	})
	smaller := letter.Key != nil || len(letter.Headers) < before
	letter.Key = nil
	return smaller
}
