package replay

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Expectation is a condition for a result, such as denied<0.1%.
type Expectation struct {
	text    string
	metric  string
	rule    string
	op      string
	value   float64
	percent bool
}

// metrics are the metrics of a result: a number, and the number of which it is a part.
var metrics = map[string]func(*Result) (part, whole int64){
	"requests":       func(r *Result) (int64, int64) { return r.Requests, r.Lines },
	"admitted":       func(r *Result) (int64, int64) { return r.Requests - r.Interval.Most(), r.Requests },
	"denied":         func(r *Result) (int64, int64) { return r.Interval.Most(), r.Requests },
	"delayed":        func(r *Result) (int64, int64) { return r.Delayed, r.Requests },
	"unreadable":     func(r *Result) (int64, int64) { return r.Unreadable, r.Lines },
	"clients_denied": func(r *Result) (int64, int64) { return int64(r.ClientsDenied), int64(r.ClientsSeen) },
	"newly_denied":   func(r *Result) (int64, int64) { return against(r).NewlyDenied, r.Requests },
	"newly_admitted": func(r *Result) (int64, int64) { return against(r).NewlyAdmitted, r.Requests },
}

func against(r *Result) Against {
	if r.Against == nil {
		return Against{}
	}
	return *r.Against
}

// ofRules are the metrics of one rule.
var ofRules = map[string]func(*Rule) (part, whole int64){
	"requests":      func(r *Rule) (int64, int64) { return r.Requests, r.Requests },
	"denied":        func(r *Rule) (int64, int64) { return max(r.Denied, r.Bunched), r.Requests },
	"shadow_denied": func(r *Rule) (int64, int64) { return r.Shadow, r.Requests },
	"delayed":       func(r *Rule) (int64, int64) { return r.Delayed, r.Requests },
}

var expectation = regexp.MustCompile(`^([a-z_]+)(?:\[([^\]]+)\])?\s*(<=|>=|<|>|=)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)$`)

// ParseExpectation parses METRIC[RULE] OP NUMBER, such as denied<0.1%, newly_denied=0 and
// denied[login]<=5. A percentage refers to all requests or, for a rule, to those that it bound. If
// the log only gives an interval of denials, the larger number counts.
func ParseExpectation(text string) (Expectation, error) {
	m := expectation.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Expectation{}, fmt.Errorf("headgate: the expectation %q is not such as denied<0.1%%, newly_denied=0 or denied[RULE]<5", text)
	}
	e := Expectation{text: text, metric: m[1], rule: m[2], op: m[3], percent: m[5] != ""}
	known := slices.Sorted(maps.Keys(metrics))
	if e.rule != "" {
		known = slices.Sorted(maps.Keys(ofRules))
	}
	if !slices.Contains(known, e.metric) {
		return Expectation{}, fmt.Errorf("headgate: the expectation %q is about %q, must be about one of %s", text, e.metric, strings.Join(known, ", "))
	}
	var err error
	if e.value, err = strconv.ParseFloat(m[4], 64); err != nil {
		return Expectation{}, fmt.Errorf("headgate: the expectation %q: %w", text, err)
	}
	return e, nil
}

// Rule is the name of the rule that the expectation is about, or "".
func (e Expectation) Rule() string { return e.rule }

// Compares reports whether the expectation is about the difference of two policies.
func (e Expectation) Compares() bool { return strings.HasPrefix(e.metric, "newly_") }

// Failed returns what was found instead, or "" if the expectation holds. For a log without
// requests, no expectation holds, because nothing was tested.
func (e Expectation) Failed(r *Result) string {
	if r.Requests == 0 {
		return fmt.Sprintf("--expect %s: the log has no requests", e.text)
	}
	var part, whole int64
	if e.rule == "" {
		part, whole = metrics[e.metric](r)
	} else {
		i := slices.IndexFunc(r.Rules, func(rule Rule) bool { return rule.Rule == e.rule })
		if i < 0 {
			return fmt.Sprintf("--expect %s: no rule %q was replayed", e.text, e.rule)
		}
		part, whole = ofRules[e.metric](&r.Rules[i])
	}
	found, shown := float64(part), strconv.FormatInt(part, 10)
	if e.percent {
		if found = 0; whole > 0 {
			found = float64(part) * 100 / float64(whole)
		}
		shown = fmt.Sprintf("%.4g %% (%d of %d)", found, part, whole)
	}
	holds := false
	switch e.op {
	case "<":
		holds = found < e.value
	case "<=":
		holds = found <= e.value
	case ">":
		holds = found > e.value
	case ">=":
		holds = found >= e.value
	case "=":
		holds = found == e.value
	}
	if holds {
		return ""
	}
	return fmt.Sprintf("--expect %s does not hold: it is %s", e.text, shown)
}
