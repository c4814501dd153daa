package headgate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// noise are words that people put between a count and its period.
var noise = []string{"r", "req", "reqs", "request", "requests", "hit", "hits", "call", "calls", "unit", "units", "times"}

// aliases are units as other programs write them.
var aliases = map[string]string{"hr": "h", "hrs": "h", "mins": "m", "secs": "s", "every": "per", "each": "per", "a": "per", "an": "per"}

// powers are what letters behind a number multiply it by.
var powers = map[string]int64{"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}

// meant is the limit that a text in the notation of another program stands for, such as "100/min",
// "10r/s" or "10k per hour", as [ParseLimit] reads it; "" if there is none.
func meant(a Algorithm, s string) string {
	words := strings.Fields(strings.NewReplacer("/", " per ", ",", "").Replace(strings.ToLower(s)))
	words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(noise, w) })
	if len(words) == 0 {
		return ""
	}
	digits := strings.TrimRight(words[0], "abcdefghijklmnopqrstuvwxyz")
	suffix := words[0][len(digits):]
	if slices.Contains(noise, suffix) {
		suffix = ""
	}
	power, known := powers[suffix]
	count, err := parseCount(digits)
	if !known || err != nil || count > MaxCount/power {
		return ""
	}
	words[0] = strconv.FormatInt(count*power, 10)
	for i, w := range words {
		if unit, ok := aliases[w]; ok {
			words[i] = unit
		}
	}
	l, err := parseLimit(a, strings.Join(words, " "))
	if err != nil || l.Validate() != nil {
		return ""
	}
	return l.String()
}

// hinted is the error of a text that is no limit, with the limit that was probably meant.
func hinted(a Algorithm, s string, err error) error {
	var invalid *InvalidError
	text := meant(a, s)
	if text == "" || !errors.As(err, &invalid) || len(invalid.Problems) != 1 {
		return err
	}
	return Invalid(fmt.Sprintf("limit %q", s), "", "did you mean %q? It is a count, the word per, and a period", text)
}
