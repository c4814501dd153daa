package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// A note holds the checks of a reservation with all their limits, so that a process whose rules
// have changed can settle it.

// appendChecks writes checks.
func appendChecks(b []byte, checks []headgate.Check) []byte {
	for i := range checks {
		c := &checks[i]
		b = appendText(b, c.Rule.Name())
		b = appendText(b, c.Rule.Tag())
		b = appendLimits(b, c.Rule)
		b = appendText(b, c.Key)
		b = binary.BigEndian.AppendUint32(b, uint32(c.Units()))
		b = binary.BigEndian.AppendUint32(b, uint32(c.Factor))
		var flags byte
		if c.GiveBack {
			flags |= 1
		}
		if c.Shadow {
			flags |= 2
		}
		b = append(b, flags, byte(c.OnError))
	}
	return b
}

// appendLimits writes everything about a rule's limits that NewRule needs.
func appendLimits(b []byte, r *headgate.Rule) []byte {
	limits := r.Limits()
	b = append(b, byte(len(limits)))
	for i := range limits {
		l := &limits[i]
		b = append(b, byte(l.Algorithm), byte(l.Align))
		b = binary.BigEndian.AppendUint32(b, uint32(l.Count))
		b = binary.BigEndian.AppendUint32(b, uint32(l.Burst))
		b = binary.BigEndian.AppendUint64(b, uint64(l.Period))
		b = binary.BigEndian.AppendUint64(b, uint64(l.Block))
		b = binary.BigEndian.AppendUint64(b, uint64(l.MaxBlock))
		zone := ""
		if l.Location != nil {
			zone = l.Location.String()
		}
		b = appendText(b, zone)
	}
	return b
}

// appendText writes the length of a text, and the text.
func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// reader reads what the functions above have written. After an error it returns zeros.
type reader struct {
	text string
	err  error
}

func (r *reader) uint(size int) int64 {
	if len(r.text) < size {
		r.text, r.err = "", errors.New("it ends before its time")
		return 0
	}
	v := readUint(r.text, size)
	r.text = r.text[size:]
	return v
}

func (r *reader) string() string {
	n := int(r.uint(2))
	if len(r.text) < n {
		r.text, r.err = "", errors.New("it ends within a text")
		return ""
	}
	s := r.text[:n]
	r.text = r.text[n:]
	return s
}

// readChecks is the inverse of appendChecks.
func readChecks(text string) ([]headgate.Check, error) {
	r := reader{text: text}
	var checks []headgate.Check
	for r.text != "" && len(checks) < headgate.MaxChecks {
		name, tag := r.string(), r.string()
		limits, err := r.limits()
		if err != nil {
			return nil, err
		}
		rule, err := headgate.NewRule(name, limits...)
		if err == nil && tag != "" {
			rule, err = rule.WithTag(tag)
		}
		if err != nil {
			return nil, err
		}
		c := headgate.Check{Rule: rule, Key: r.string(), Cost: r.uint(4), Factor: r.uint(4)}
		flags := r.uint(1)
		c.GiveBack, c.Shadow = flags&1 != 0, flags&2 != 0
		c.OnError = headgate.OnError(r.uint(1))
		if r.err != nil {
			return nil, r.err
		}
		checks = append(checks, c)
	}
	return checks, store.Validate(headgate.OpTake, checks)
}

func (r *reader) limits() ([]headgate.Limit, error) {
	limits := make([]headgate.Limit, r.uint(1))
	for i := range limits {
		l := &limits[i]
		l.Algorithm, l.Align = headgate.Algorithm(r.uint(1)), headgate.Alignment(r.uint(1))
		l.Count, l.Burst = r.uint(4), r.uint(4)
		l.Period, l.Block, l.MaxBlock = time.Duration(r.uint(8)), time.Duration(r.uint(8)), time.Duration(r.uint(8))
		if zone := r.string(); zone != "" && r.err == nil {
			location, err := headgate.LoadLocation(zone)
			if err != nil {
				return nil, fmt.Errorf("limit %d: %w", i+1, err)
			}
			l.Location = location
		}
	}
	return limits, r.err
}

// cutText32 cuts off a text that follows its length in four bytes.
func cutText32(s string) (text, rest string, err error) {
	if len(s) >= 4 {
		if n := readUint(s, 4); int64(len(s)-4) >= n {
			return s[4 : 4+n], s[4+n:], nil
		}
	}
	return "", "", errors.New("it ends within an answer")
}
