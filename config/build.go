package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// compiler makes rules of what was read. Every rule goes to policy.New, even if some of
// it could not be used, so that what is wrong with the rest is told as well;
// stand-ins take the place of what could not.
type compiler struct {
	*mistakes
	rules  []policy.Rule
	places []places
}

// standIn takes the place of a limit with a mistake.
func standIn() headgate.Limit { return headgate.PerSecond(1) }

func compile(m *mistakes, file *fileText, opts []policy.Option) *policy.Set {
	c := compiler{mistakes: m}
	for i := range file.rules {
		if e := &file.rules[i]; e.good {
			c.rule(e.at, &e.value)
		}
	}
	for i := range file.short {
		if e := &file.short[i]; e.good {
			c.short(e.at, &e.value)
		}
	}
	set, err := policy.New(c.rules, opts...)
	var found *policy.Error
	if errors.As(err, &found) {
		for _, mistake := range found.Mistakes {
			c.add(c.placeOf(&mistake), "%s", mistake.Text)
		}
	}
	return set
}

// placeOf is where the mistake's field stands or, failing that, its rule.
func (c *compiler) placeOf(m *policy.Mistake) place {
	if m.Index < 0 {
		return place{}
	}
	if at, ok := c.places[m.Index][m.Field]; ok {
		return at
	}
	return place{m.Pos.Line, m.Pos.Column}
}

func (c *compiler) rule(at place, t *ruleText) {
	limits := make([]headgate.Limit, len(t.limits))
	ats := make([]place, len(t.limits))
	good, zoned := true, false
	for i := range t.limits {
		e := &t.limits[i]
		limits[i], ats[i] = standIn(), e.at
		if !e.good {
			good = false
			continue
		}
		l, err := e.value.resolve(t.algorithm, t.zone)
		if err != nil {
			c.add(e.at, "%s", words(err))
			good = false
			continue
		}
		zoned = zoned || l.Location != nil && l.Location == t.zone
		limits[i] = l
	}
	if t.zone != nil && good && !zoned {
		c.add(t.places["time_zone"], "time_zone is %s, but no limit has calendar windows that it would apply to; leave it out", t.zone)
	}
	c.append(at, t.places, policy.Rule{Match: t.match, Per: t.per, Cost: t.cost}, t.name, limits, ats)
}

func (c *compiler) short(at place, t *shortText) {
	limits := make([]headgate.Limit, len(t.config))
	ats := make([]place, len(t.config))
	for i := range t.config {
		e := &t.config[i]
		limits[i], ats[i] = standIn(), e.at
		if w := e.value; e.good && w.limit > 0 && w.period > 0 {
			limits[i] = headgate.Sliding(w.limit, time.Duration(w.period)*time.Second)
		}
	}
	c.append(at, t.places, policy.Rule{Direct: true}, t.name, limits, ats)
}

// append compiles the limits and keeps the rule.
func (c *compiler) append(at place, p places, r policy.Rule, name string, limits []headgate.Limit, ats []place) {
	if len(limits) == 0 {
		limits = []headgate.Limit{standIn()} // A mistake that was told already.
	}
	compiled, err := headgate.NewRule(name, limits...)
	var invalid *headgate.InvalidError
	if errors.As(err, &invalid) {
		c.problems(p, name, invalid.Problems, limits, ats)
	}
	if err != nil {
		// With its own name, if it is one, the rule can still be found to repeat
		// that of another.
		if compiled, err = headgate.NewRule(name, standIn()); err != nil {
			compiled = headgate.MustRule(fmt.Sprintf("line-%d-column-%d", at.line, at.column), standIn())
		}
	}
	r.Limits = compiled
	r.Pos = policy.Position{File: c.file, Line: at.line, Column: at.column}
	c.rules = append(c.rules, r)
	c.places = append(c.places, p)
}

// problems tells what NewRule found, each at its place. A missing name was told
// already.
func (c *compiler) problems(p places, name string, problems []string, limits []headgate.Limit, ats []place) {
	for _, text := range problems {
		rest, isLimit := strings.CutPrefix(text, "limit ")
		number, rest, _ := strings.Cut(rest, ": ")
		i, err := strconv.Atoi(number)
		switch {
		case isLimit && err == nil && i >= 1 && i <= len(ats):
			c.add(ats[i-1], "limit %q: %s", &limits[i-1], rest)
		default:
			if at, ok := p["name"]; ok {
				c.add(at, "%s", text)
			}
		}
	}
}
