package document

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// entryWords is what clients call an entry.
func entryWords(entry string) string {
	switch entry {
	case "api_key":
		return "API key"
	case "ip":
		return "IP address"
	}
	return strings.NewReplacer("_", " ", ".", " ").Replace(entry)
}

func article(noun string) string {
	if strings.ContainsRune("AEIOaeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// partWords is what a part of a key counts by.
func partWords(p policy.Part) string {
	words := entryWords(p.Entry)
	var cut []string
	if p.Bits4 != 0 && p.Bits4 != 32 {
		cut = append(cut, fmt.Sprintf("IPv4 networks of /%d", p.Bits4))
	}
	if p.Bits6 != 0 && p.Bits6 != 128 {
		cut = append(cut, fmt.Sprintf("IPv6 networks of /%d", p.Bits6))
	}
	if cut != nil {
		words += " (" + strings.Join(cut, " and ") + " count as one)"
	}
	return words
}

// limitsWords is a list of limits in words, that of the longest period first: "20 a minute, at
// most 5 within 3 seconds".
func limitsWords(rule *headgate.Rule) string {
	limits := slices.Clone(rule.Limits())
	slices.SortStableFunc(limits, func(a, b headgate.Limit) int {
		return cmp.Or(cmp.Compare(kind(a), kind(b)), cmp.Compare(b.Micros(), a.Micros()))
	})
	var all []string
	for i := range limits {
		all = append(all, limitWords(&limits[i], i == 0))
	}
	return strings.Join(all, ", ")
}

// kind orders penalties behind limits.
func kind(l headgate.Limit) int {
	if l.Algorithm == headgate.Penalty {
		return 1
	}
	return 0
}

func limitWords(l *headgate.Limit, first bool) string {
	count := strconv.FormatInt(l.Count, 10)
	switch {
	case l.Algorithm == headgate.Penalty:
		words := fmt.Sprintf("after %d denied requests within %s no more for %s", l.Count, within(l.Period), within(l.Block))
		if l.MaxBlock > l.Block {
			words += ", and longer each time, up to " + within(l.MaxBlock)
		}
		return words
	case l.Align >= headgate.AlignMinute:
		return atMost(first) + count + " per calendar " + l.Align.String() + zone(l)
	case l.Algorithm == headgate.LeakyBucket:
		return atMost(first) + count + " " + every(l.Period) + ", evenly spaced: what comes faster is delayed"
	case l.Algorithm == headgate.TokenBucket:
		return fmt.Sprintf("%s%s %s on average, up to %d at once", atMost(first), count, every(l.Period), l.Capacity())
	case first:
		return count + " " + every(l.Period)
	}
	return "at most " + count + " within " + within(l.Period)
}

func atMost(first bool) string {
	if first {
		return ""
	}
	return "at most "
}

func zone(l *headgate.Limit) string {
	if l.Location == nil {
		return " (UTC)"
	}
	return " (" + l.Location.String() + ")"
}

// units are the lengths of time that have a name.
var units = []struct {
	length time.Duration
	name   string
}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}, {time.Millisecond, "millisecond"}}

// every is "a minute" or "every 15 minutes".
func every(d time.Duration) string {
	for _, u := range units {
		if d == u.length {
			return map[bool]string{true: "an ", false: "a "}[u.name == "hour"] + u.name
		}
	}
	return "every " + within(d)
}

// within is "3 seconds" or "1 minute".
func within(d time.Duration) string {
	for _, u := range units {
		if n := int64(d / u.length); d%u.length == 0 && n > 0 {
			if n == 1 {
				return "1 " + u.name
			}
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.String()
}

// notes are sentences about what a request costs and when it is charged.
func notes(r *policy.Rule) (all []string) {
	switch c := r.Costs; {
	case c == nil && r.Factor() > 1:
		all = append(all, fmt.Sprintf("Each request counts as %d.", r.Factor()))
	case c == nil:
	case c.Per > 0:
		words := fmt.Sprintf("Each %d of the request's %s count as one", c.Per, entryWords(c.Entry))
		if c.Max > 0 {
			words += fmt.Sprintf(", %d at most", c.Max)
		}
		all = append(all, words+".")
	case slices.Contains(public, c.Entry):
		for _, value := range slices.Sorted(maps.Keys(c.Values)) {
			all = append(all, fmt.Sprintf("%s counts as %d.", value, c.Values[value]))
		}
		all = append(all, fmt.Sprintf("All else counts as %d.", c.Other))
	}
	switch {
	case len(r.ChargeOn) > 0:
		all = append(all, "Only requests that are answered with "+statuses(r.ChargeOn)+" count.")
	case len(r.GiveBackOn) > 0:
		all = append(all, "Requests that are answered with "+statuses(r.GiveBackOn)+" do not count.")
	}
	return all
}

func statuses(s policy.Statuses) string {
	var all []string
	for _, one := range s {
		all = append(all, one.String())
	}
	return strings.Join(all, " or ")
}
