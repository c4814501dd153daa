package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// entryPattern is what the schema knows of the name of a descriptor's entry.
const entryPattern = `^[A-Za-z0-9_.:-]{1,64}$`

func partText() value[policy.Part] {
	s := schema{"pattern": `^[A-Za-z0-9_.:-]{1,64}(/[0-9]{1,3}){0,2}$`}
	return plainText(s, policy.ParsePart)
}

// oneForAll is what per says where one counter is for all.
const oneForAll = "all"

// aboutPer ends what is said where per is missing.
const aboutPer = "entries to count by, such as [api_key] or [ip/64], with a counter for each combination of values; or all, for a single counter"

// perValue is a list of parts, or [oneForAll], which is read as none.
func perValue() value[[]entry[policy.Part]] {
	parts := listOf(partText(), 1, policy.MaxParts)
	s := schema{"anyOf": []schema{{"const": oneForAll}, parts.schema}}
	return value[[]entry[policy.Part]]{s, func(r *reader, name string, n *node) ([]entry[policy.Part], bool) {
		switch {
		case n.kind == text && n.text == oneForAll:
			return nil, true
		case n.kind != list:
			r.add(n.at, "%s is %s, must be a list, such as [api_key], or all", name, describe(n))
			return nil, false
		case len(n.items) == 1 && n.items[0].text == oneForAll:
			r.add(n.at, "%s is [all], which counts by an entry of that name; for one counter that all requests share write %s: all", name, name)
			return nil, false
		}
		return parts.read(r, name, n)
	}}
}

// oneOrMore is a list of words, or one of them.
func oneOrMore(words ...string) value[[]entry[string]] {
	one := oneOf(words...)
	several := listOf(one, 1, len(words))
	s := schema{"anyOf": []schema{one.schema, several.schema}}
	return value[[]entry[string]]{s, func(r *reader, name string, n *node) ([]entry[string], bool) {
		if n.kind == list {
			return several.read(r, name, n)
		}
		word, ok := one.read(r, name, n)
		return []entry[string]{{value: word, at: n.at, good: ok}}, ok
	}}
}

func zoneText() value[*time.Location] {
	return plainText(schema{"minLength": 1}, headgate.LoadLocation)
}

func algorithmName() value[headgate.Algorithm] {
	var choices []headgate.Algorithm
	for a := headgate.TokenBucket; a <= headgate.SlidingCounter; a++ {
		choices = append(choices, a)
	}
	return oneOf(choices...)
}

func alignName() value[headgate.Alignment] {
	var choices []headgate.Alignment
	for a := headgate.AlignUTC; a <= headgate.AlignYear; a++ {
		choices = append(choices, a)
	}
	return oneOf(choices...)
}

// percent is a whole number of percent, such as 80%.
func percent(least, most int) value[int] {
	s := schema{"type": "string", "pattern": `^[0-9]{1,3}%$`}
	return value[int]{s, func(r *reader, name string, n *node) (int, bool) {
		digits, marked := strings.CutSuffix(n.text, "%")
		x, err := strconv.ParseUint(digits, 10, 16)
		switch {
		case n.kind == whole:
			r.add(n.at, "%s is %s without a percent sign; write %s%%", name, n.text, n.text)
		case n.kind != text || !marked || err != nil || len(digits) > 3:
			r.add(n.at, "%s is %s, must be a percentage such as 80%%", name, describe(n))
		case int(x) < least || int(x) > most:
			r.add(n.at, "%s is %s, must be %d%% to %d%%", name, n.text, least, most)
		default:
			return int(x), true
		}
		return 0, false
	}}
}

// day is how a day is written.
const day = "2006-01-02"

// untilText is a day, which ends what it ends when it is over in UTC, or a time.
func untilText() value[time.Time] {
	s := schema{"pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].*)?$`}
	return plainText(s, func(text string) (time.Time, error) {
		t, err := time.Parse(day, text)
		if err == nil {
			t = t.AddDate(0, 0, 1)
		} else if t, err = time.Parse(time.RFC3339, text); err != nil {
			return t, fmt.Errorf("until is %q, must be a day such as 2026-12-31, which is the last, or a time such as 2026-12-31T18:00:00Z", text)
		}
		// The zero time would never end, and a year has four digits.
		if year := t.UTC().Year(); year < 1970 || year > 9998 {
			return t, fmt.Errorf("until is %q, must lie in the years 1970 to 9998", text)
		}
		return t, nil
	})
}

// formatUntil writes what untilText reads.
func formatUntil(t time.Time) string {
	t = t.UTC()
	if t.Equal(t.Truncate(24 * time.Hour)) {
		return t.AddDate(0, 0, -1).Format(day)
	}
	return t.Format(time.RFC3339Nano)
}

// scalarText is a text, or what a number, true or false is written as.
func scalarText() value[string] {
	s := schema{"type": []string{"string", "number", "boolean"}}
	return value[string]{s, func(r *reader, name string, n *node) (string, bool) {
		if n.kind == empty || n.kind == list || n.kind == mapping {
			r.add(n.at, "%s is %s, must be a text", name, describe(n))
			return "", false
		}
		return n.text, true
	}}
}
