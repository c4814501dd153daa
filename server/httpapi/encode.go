package httpapi

import (
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// texts holds what is always the same in the answers about one policy, so that
// an answer is put together from parts that are there already. It is immutable.
type texts struct {
	set     decide.Policy
	byLimit map[*headgate.Limit]*text
	soft    bool // some rule warns
	// rules is the whole policy. It is made when somebody asks, once: a large
	// policy takes a while to write, and anybody may ask.
	rules func() []byte
}

// text is what is always the same about one limit.
type text struct {
	name string // "rule":…,"limit":…
	kind string // "algorithm":…
	size string // "capacity":…,"period_ms":…
}

func newTexts(set decide.Policy) *texts {
	t := &texts{set: set, byLimit: make(map[*headgate.Limit]*text)}
	t.rules = sync.OnceValue(func() []byte { return encodeRules(t) })
	rules := set.Rules()
	for i := range rules {
		r := &rules[i]
		t.soft = t.soft || r.Soft > 0
		t.add(r.Limits)
		if r.Tariff != nil {
			t.add(r.Tariff.Other)
			for j := range r.Tariff.Tiers {
				t.add(r.Tariff.Tiers[j].Limits)
			}
		}
		for j := range r.Overrides {
			t.add(r.Overrides[j].Limits)
		}
	}
	return t
}

// add makes the texts of a list of limits.
func (t *texts) add(rule *headgate.Rule) {
	if rule == nil {
		return
	}
	limits := rule.Limits()
	for i := range limits {
		if l := &limits[i]; t.byLimit[l] == nil {
			t.byLimit[l] = newText(rule, l)
		}
	}
}

// of returns the text of the decision's limit. A store may answer with a limit
// that is not one of the policy's own: its text is made for the occasion.
func (t *texts) of(d *headgate.Decision) *text {
	if found, ok := t.byLimit[d.Limit]; ok {
		return found
	}
	return newText(d.Rule, d.Limit)
}

func newText(rule *headgate.Rule, limit *headgate.Limit) *text {
	name := appendString([]byte(`"rule":`), rule.Name())
	name = appendString(append(name, `,"limit":`...), limit.String())
	kind := appendString([]byte(`"algorithm":`), limit.Algorithm.String())
	size := strconv.AppendInt([]byte(`"capacity":`), limit.Capacity(), 10)
	size = strconv.AppendInt(append(size, `,"period_ms":`...), ceilMillis(time.Duration(limit.Micros())*time.Microsecond), 10)
	return &text{name: string(name), kind: string(kind), size: string(size)}
}

// appendVerdict writes an object that holds the verdict's members. With at, it
// also has the time of the decision, for a refund to name. It ends its line, as
// every answer does, for those who read them in a terminal.
func appendVerdict(b []byte, v *headgate.Verdict, t *texts, at bool) []byte {
	return append(appendMembers(append(b, '{'), v, t, at), "}\n"...)
}

// appendMembers writes the verdict's members without the braces around them.
func appendMembers(b []byte, v *headgate.Verdict, t *texts, at bool) []byte {
	b = strconv.AppendBool(append(b, `"allowed":`...), v.Allowed)
	if d := v.Deciding(); d != nil && !v.Allowed {
		b = append(b, `,"denied_by":{`...)
		b = append(append(b, t.of(d).name...), '}')
	}
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), ceilMillis(v.RetryAfter), 10)
	b = strconv.AppendInt(append(b, `,"delay_ms":`...), ceilMillis(v.Delay), 10)
	if at && len(v.Decisions) > 0 {
		b = strconv.AppendInt(append(b, `,"at":`...), v.Decisions[0].At, 10)
	}
	b = append(b, `,"decisions":[`...)
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if i > 0 {
			b = append(b, ',')
		}
		text := t.of(d)
		b = append(append(b, '{'), text.name...)
		b = append(append(b, ','), text.kind...)
		b = strconv.AppendBool(append(b, `,"allowed":`...), d.Allowed)
		if d.Source != headgate.SourceStore {
			b = append(append(append(b, `,"source":"`...), d.Source.String()...), '"')
		}
		if d.Shadow {
			b = append(b, `,"shadow":true`...)
		}
		if t.soft && t.set.Soft(d) {
			b = append(b, `,"soft":true`...)
		}
		b = append(append(b, ','), text.size...)
		b = strconv.AppendInt(append(b, `,"remaining":`...), d.Remaining, 10)
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), ceilMillis(d.RetryAfter), 10)
		b = strconv.AppendInt(append(b, `,"reset_after_ms":`...), ceilMillis(d.ResetAfter), 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// ceilMillis is d in milliseconds, rounded up so that waiting that long is
// enough. Never stays -1.
func ceilMillis(d time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return int64(ms)
}

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, as JSON has no way to say them.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, s[start:i]...), `\ufffd`...)
		} else {
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}
