package httpapi

import (
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// text holds the encoded parts of an answer that never change for one limit.
type text struct {
	name string // "rule":…,"limit":…
	kind string // "algorithm":…
	size string // "capacity":…,"period_ms":…
}

func newText(l decide.LimitText) text {
	name := appendString([]byte(`"rule":`), l.Rule)
	name = appendString(append(name, `,"limit":`...), l.Limit)
	kind := appendString([]byte(`"algorithm":`), l.Algorithm)
	size := strconv.AppendInt([]byte(`"capacity":`), l.Capacity, 10)
	size = strconv.AppendInt(append(size, `,"period_ms":`...), l.PeriodMS, 10)
	return text{name: string(name), kind: string(kind), size: string(size)}
}

// appendMembers writes the members of the answer without the surrounding braces. With at, they
// include the time of the decision, which a refund can name.
func (h *Handler) appendMembers(b []byte, set *policy.Set, o *decide.Outcome, at bool) []byte {
	b = strconv.AppendBool(append(b, `"allowed":`...), o.Verdict.Allowed)
	if d := o.DeniedBy(); d != nil {
		b = append(b, `,"denied_by":{`...)
		b = append(append(b, h.texts.Of(set, d).name...), '}')
	} else if o.Listed != nil {
		b = append(appendString(append(b, `,"denied_by":{"list":`...), o.Listed.Name), '}')
	}
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), o.RetryAfterMS(), 10)
	b = strconv.AppendInt(append(b, `,"delay_ms":`...), o.DelayMS(), 10)
	if at && o.At != 0 {
		b = strconv.AppendInt(append(b, `,"at":`...), o.At, 10)
	}
	b = append(b, `,"decisions":[`...)
	for i := range o.Verdict.Decisions {
		if i > 0 {
			b = append(b, ',')
		}
		row := o.Row(i)
		b = h.appendRow(b, set, &row)
	}
	b = append(b, ']')
	for i, name := range o.Unenforced {
		if i == 0 {
			b = append(b, `,"unenforced":[`...)
		} else {
			b = append(b, ',')
		}
		if b = appendString(b, name); i == len(o.Unenforced)-1 {
			b = append(b, ']')
		}
	}
	if o.Reservation != "" {
		b = appendString(append(b, `,"reservation":`...), o.Reservation)
		b = strconv.AppendInt(append(b, `,"expires_in_ms":`...), o.ExpiresInMS(), 10)
	}
	return b
}

func (h *Handler) appendRow(b []byte, set *policy.Set, row *decide.Row) []byte {
	d := row.Decision
	text := h.texts.Of(set, d)
	b = append(append(b, '{'), text.name...)
	b = append(append(b, ','), text.kind...)
	b = strconv.AppendBool(append(b, `,"allowed":`...), d.Allowed)
	if row.Source != "" {
		b = append(append(append(b, `,"source":"`...), row.Source...), '"')
	}
	if d.Shadow {
		b = append(b, `,"shadow":true`...)
	}
	if row.Soft {
		b = append(b, `,"soft":true`...)
	}
	b = append(append(b, ','), text.size...)
	b = strconv.AppendInt(append(b, `,"remaining":`...), d.Remaining, 10)
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), row.RetryAfterMS, 10)
	b = strconv.AppendInt(append(b, `,"reset_after_ms":`...), row.ResetAfterMS, 10)
	return append(b, '}')
}

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string. Bytes that are not UTF-8 become U+FFFD, because JSON
// cannot represent them.
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
