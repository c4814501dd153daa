package config

import (
	"time"

	"github.com/headgate/headgate"
)

// limitText is one limit as it was read. Which algorithm it has may depend on
// its rule, which is why the short form is still a text.
type limitText struct {
	text   string // "20 per 60s"; empty for the long form
	limit  headgate.Limit
	chosen bool // the limit names its algorithm
}

// resolve makes the limit of a rule with this algorithm and time zone.
func (t *limitText) resolve(a headgate.Algorithm, zone *time.Location) (headgate.Limit, error) {
	l := t.limit
	switch {
	case t.text != "":
		var err error
		if l, err = headgate.ParseLimit(a, t.text); err != nil {
			return l, err
		}
	case t.chosen:
	case l.Align != headgate.AlignUTC:
		l.Algorithm = headgate.FixedWindow
	default:
		l.Algorithm = a
	}
	if l.Align >= headgate.AlignMinute && l.Location == nil {
		l.Location = zone
	}
	return l, nil
}

// limitEither is a limit in one of its two forms: a text such as "20 per 60s",
// or a mapping.
func limitEither() value[limitText] {
	long := limitMapping()
	short := schema{
		"type":        "string",
		"description": "such as 20 per 60s, 50 per 1s burst 200, 1000 per calendar month in Europe/Berlin; or a penalty, 5 denials per 1m block 1m up to 1h",
		"pattern":     `^\s*[0-9][0-9_]*\s+(denials\s+)?per\s+[^\s].*$`,
	}
	s := schema{"oneOf": []schema{short, long.schema}}
	return value[limitText]{s, func(r *reader, name string, n *node) (limitText, bool) {
		switch n.kind {
		case text:
			if n.text != "" {
				return limitText{text: n.text}, true
			}
		case mapping:
			return long.read(r, name, n)
		}
		r.add(n.at, "%s is %s, must be a limit, such as 20 per 60s", name, describe(n))
		return limitText{}, false
	}}
}

func limitMapping() value[limitText] {
	v := object("a limit", []field[limitText]{
		to("algorithm", "the algorithm. Default: the rule's, or fixed_window if align is set", algorithmName(),
			func(into *limitText, _ *node, v headgate.Algorithm) { into.limit.Algorithm, into.chosen = v, true }),
		required(to("count", "how many units are admitted in a period", wholeNumber(1, headgate.MaxCount),
			func(into *limitText, _ *node, v int64) { into.limit.Count = v })),
		to("period", "length of the window, or time in which count units refill, such as 60s, 5m, 1h or 1 day. Not for calendar windows", periodText(),
			func(into *limitText, _ *node, v time.Duration) { into.limit.Period = v }),
		to("burst", "the largest amount admitted at once (token_bucket) or queued (leaky_bucket). Default: count", wholeNumber(1, headgate.MaxCount),
			func(into *limitText, _ *node, v int64) { into.limit.Burst = v }),
		to("align", "where windows of fixed_window begin: at multiples of the period (utc), at the first request (first), or at a calendar unit", alignName(),
			func(into *limitText, _ *node, v headgate.Alignment) { into.limit.Align = v }),
		to("time_zone", "time zone of calendar windows, such as Europe/Berlin", zoneText(),
			func(into *limitText, _ *node, v *time.Location) { into.limit.Location = v }),
	})
	v.schema["anyOf"] = []schema{{"required": []string{"period"}}, {"required": []string{"align"}}}
	return value[limitText]{v.schema, func(r *reader, name string, n *node) (limitText, bool) {
		before := r.count()
		t, ok := v.read(r, name, n)
		if !ok || r.count() != before {
			return t, false
		}
		if t.limit.Period == 0 && t.limit.Align < headgate.AlignMinute {
			r.add(n.at, "a limit has no period; write one such as 60s, or align it to a calendar unit")
			return t, false
		}
		return t, true
	}}
}

func periodText() value[time.Duration] {
	v := plainText(schema{"pattern": `^\s*([0-9]+\s*)?[a-zµ]+\s*$`}, headgate.ParsePeriod)
	return value[time.Duration]{v.schema, func(r *reader, name string, n *node) (time.Duration, bool) {
		if n.kind == whole {
			r.add(n.at, "%s is %s without a unit; write %ss if seconds are meant", name, n.text, n.text)
			return 0, false
		}
		return v.read(r, name, n)
	}}
}
