package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// ParseVector reads the text of a vector. Its error has every mistake, each with
// file and line.
func ParseVector(file, text string) (*Vector, error) {
	p := parser{vector: &Vector{File: file}, rules: map[string]*headgate.Rule{}}
	for _, s := range p.statements(text) {
		if err := p.statement(s); err != nil {
			p.mistake(s.line, err)
		}
	}
	if len(p.mistakes) > 0 {
		return nil, errors.Join(p.mistakes...)
	}
	return p.vector, nil
}

type parser struct {
	vector   *Vector
	origin   time.Time // what times are counted from; zero before the clock line
	rules    map[string]*headgate.Rule
	mistakes []error
}

func (p *parser) mistake(line int, err error) {
	p.mistakes = append(p.mistakes, fmt.Errorf("%s:%d: %w", p.vector.File, line, err))
}

// statement is a line that begins at the margin, and the indented ones behind it.
type statement struct {
	line  int
	words []string
	more  []statement
}

func (p *parser) statements(text string) []statement {
	var all []statement
	number := 0
	for line := range strings.Lines(text) {
		number++
		words, err := splitWords(line)
		switch {
		case err != nil:
			p.mistake(number, err)
		case len(words) == 0:
		case line[0] != ' ' && line[0] != '\t':
			all = append(all, statement{line: number, words: words})
		case len(all) == 0:
			p.mistake(number, errors.New("an indented line continues the one above, and there is none"))
		default:
			last := &all[len(all)-1]
			last.more = append(last.more, statement{line: number, words: words})
		}
	}
	return all
}

// splitWords cuts a line at spaces, which may stand in "quotes", and leaves the
// comment out.
func splitWords(line string) ([]string, error) {
	var words []string
	for {
		line = strings.TrimLeft(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			return words, nil
		}
		n := 0
		for n < len(line) && !strings.ContainsRune(" \t\r\n", rune(line[n])) {
			if line[n] != '"' {
				n++
				continue
			}
			quoted, err := strconv.QuotedPrefix(line[n:])
			if err != nil {
				return nil, errors.New("a quote is not closed, or holds what a Go string must not")
			}
			n += len(quoted)
		}
		words, line = append(words, line[:n]), line[n:]
	}
}

func (p *parser) statement(s statement) error {
	switch s.words[0] {
	case "clock":
		return p.clock(s)
	case "rule":
		return p.rule(s)
	case "at":
		return p.step(s)
	}
	return fmt.Errorf("%q is not clock, rule or at", s.words[0])
}

func (p *parser) clock(s statement) error {
	if len(s.words) != 2 || len(s.more) > 0 {
		return errors.New("write clock 2026-01-01T00:00:00Z")
	}
	t, err := parseStamp(s.words[1])
	if err != nil {
		return err
	}
	p.origin = t
	return nil
}

// parseStamp reads a point in time.
func parseStamp(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("%q is not a time such as 2026-01-01T00:00:00.000001Z", s)
	}
	if t.Nanosecond()%1000 != 0 {
		return t, fmt.Errorf("%q is not a whole number of microseconds", s)
	}
	if y := t.Year(); y < 1971 || y > 2200 {
		return t, fmt.Errorf("%q is not between the years 1971 and 2200", s)
	}
	return t, nil
}

// rule defines a rule, or changes it from here on.
func (p *parser) rule(s statement) error {
	if len(s.words) != 2 {
		return errors.New("write rule NAME, and its limits on indented lines below")
	}
	name := s.words[1]
	if strings.ContainsAny(name, `/"`) {
		return fmt.Errorf("rule %q: a name in a vector has no slash and no quote", name)
	}
	var limits []headgate.Limit
	for _, m := range s.more {
		a, err := headgate.ParseAlgorithm(m.words[0])
		if err != nil {
			return fmt.Errorf("line %d: %w", m.line, err)
		}
		l, err := headgate.ParseLimit(a, strings.Join(m.words[1:], " "))
		if err != nil {
			return fmt.Errorf("line %d: %w", m.line, err)
		}
		limits = append(limits, l)
	}
	r, err := headgate.NewRule(name, limits...)
	if err != nil {
		return err
	}
	p.rules[name] = r
	return nil
}

// step reads at TIME OP CHECKS -> OUTCOMES.
func (p *parser) step(s statement) error {
	words := s.words
	for _, m := range s.more {
		words = append(words, m.words...)
	}
	const form = "write at TIME take RULE/KEY COST -> allow remaining=1 reset=1s"
	request, outcomes := cutAt(words, "->")
	if len(request) < 4 || outcomes == nil {
		return errors.New(form)
	}
	now, err := p.time(request[1])
	if err != nil {
		return err
	}
	step := Step{Line: s.line, Now: now}
	if step.Op, err = parseOp(request[2]); err != nil {
		return err
	}
	if step.Checks, err = p.checks(step.Op, request[3:]); err != nil {
		return err
	}
	if step.Want, err = wants(&step, outcomes); err != nil {
		return err
	}
	p.vector.Steps = append(p.vector.Steps, step)
	return nil
}

// cutAt cuts words around the first mark; after is nil if there is none.
func cutAt(words []string, mark string) (before, after []string) {
	for i, w := range words {
		if w == mark {
			return words[:i], append([]string{}, words[i+1:]...)
		}
	}
	return words, nil
}

// time reads a point in time, or a duration since the origin.
func (p *parser) time(s string) (int64, error) {
	if strings.Contains(s, ":") {
		t, err := parseStamp(s)
		return t.UnixMicro(), err
	}
	if p.origin.IsZero() {
		return 0, fmt.Errorf("time %q is counted from the clock line, which must come first", s)
	}
	d, err := parseDuration(s)
	if err != nil {
		return 0, err
	}
	const most = 100 * 366 * 24 * time.Hour
	if d < -most || d > most {
		return 0, fmt.Errorf("time %q is more than 100 years from the clock line", s)
	}
	return max(0, p.origin.UnixMicro()+d.Microseconds()), nil
}

// parseDuration reads a duration as Go writes it, of whole microseconds, with
// days before it if there are some: 30d, 1d12h, 1m0.000001s.
func parseDuration(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	bad := fmt.Errorf("duration %q is not one such as 30d, 1d12h, 1.5s or 1us, of whole microseconds", s)
	text, days := s, int64(0)
	if before, after, ok := strings.Cut(s, "d"); ok {
		var err error
		if days, err = strconv.ParseInt(before, 10, 64); err != nil || days < 0 || days > int64(1<<63-1)/int64(day)-1 {
			return 0, bad
		}
		if text = after; text == "" {
			text = "0"
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Microsecond != 0 || days > 0 && (d < 0 || d >= day) {
		return 0, bad
	}
	return time.Duration(days)*day + d, nil
}

func parseOp(s string) (headgate.Op, error) {
	for op := headgate.OpTake; op <= headgate.OpCharge; op++ {
		if s == op.String() {
			return op, nil
		}
	}
	return 0, fmt.Errorf("%q is not take, peek, refund, reset or charge", s)
}

// checks reads [shadow] RULE/KEY [COST] [@TIME], several with + between them.
func (p *parser) checks(op headgate.Op, words []string) ([]headgate.Check, error) {
	var checks []headgate.Check
	for words != nil {
		var part []string
		part, words = cutAt(words, "+")
		if len(part) == 0 {
			return nil, errors.New("a check is missing beside a +")
		}
		c, err := p.check(op, part)
		if err != nil {
			return nil, err
		}
		checks = append(checks, c)
	}
	return checks, store.Validate(op, checks)
}

func (p *parser) check(op headgate.Op, words []string) (headgate.Check, error) {
	shadow := words[0] == "shadow" && len(words) > 1
	if shadow {
		words = words[1:]
	}
	name, key, ok := strings.Cut(words[0], "/")
	c := headgate.Check{Rule: p.rules[name], Key: key, Cost: 1, Shadow: shadow}
	if !ok || c.Rule == nil {
		return c, fmt.Errorf("%q does not begin with the name of a rule above and a slash", words[0])
	}
	if strings.HasPrefix(key, `"`) {
		var err error
		if c.Key, err = strconv.Unquote(key); err != nil {
			return c, fmt.Errorf("key %s cannot be read: %w", key, err)
		}
	}
	words = words[1:]
	if len(words) > 0 && op != headgate.OpReset && !strings.HasPrefix(words[0], "@") {
		var err error
		if c.Cost, err = parseUnits(words[0]); err != nil || c.Cost == 0 {
			return c, fmt.Errorf("cost %q is not a whole number from 1", words[0])
		}
		words = words[1:]
	}
	if len(words) > 0 && op == headgate.OpRefund && strings.HasPrefix(words[0], "@") {
		at, err := p.time(words[0][1:])
		if err != nil {
			return c, err
		}
		c.At = headgate.Instant(at)
		words = words[1:]
	}
	if len(words) > 0 {
		return c, fmt.Errorf("%q is not understood in a check to %s", strings.Join(words, " "), op)
	}
	return c, nil
}

// parseUnits reads a whole number, whose digits underscores may group.
func parseUnits(s string) (int64, error) {
	n, err := strconv.ParseUint(strings.ReplaceAll(s, "_", ""), 10, 62)
	return int64(n), err
}

// wants reads an outcome for each limit, with semicolons between them.
func wants(step *Step, words []string) ([]headgate.Decision, error) {
	if step.Op == headgate.OpReset {
		if len(words) != 1 || words[0] != "done" {
			return nil, errors.New("a reset decides nothing: write -> done")
		}
		return nil, nil
	}
	var want []headgate.Decision
	for i := range step.Checks {
		r := step.Checks[i].Rule
		for j := range r.Limits() {
			if words == nil {
				return nil, fmt.Errorf("there is no outcome for limit %d of rule %s", j+1, r.Name())
			}
			var part []string
			part, words = cutAt(words, ";")
			d := headgate.Decision{Rule: r, Limit: &r.Limits()[j], Check: i, Shadow: step.Checks[i].Shadow, At: headgate.Instant(step.Now)}
			if err := outcome(&d, part); err != nil {
				return nil, fmt.Errorf("limit %d of rule %s: %w", j+1, r.Name(), err)
			}
			want = append(want, d)
		}
	}
	if words != nil {
		return nil, fmt.Errorf("there are outcomes for more than the %d limits: %q", len(want), strings.Join(words, " "))
	}
	return want, nil
}

// outcome reads allow or deny and what follows it. A field that is left out is
// zero.
func outcome(d *headgate.Decision, words []string) error {
	if len(words) == 0 || words[0] != "allow" && words[0] != "deny" {
		return fmt.Errorf("%q does not begin with allow or deny", strings.Join(words, " "))
	}
	d.Allowed = words[0] == "allow"
	seen := map[string]bool{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		if seen[name] {
			return fmt.Errorf("%s is said twice", name)
		}
		seen[name] = true
		var err error
		switch name {
		case "remaining":
			d.Remaining, err = parseUnits(value)
		case "retry":
			if value == "never" {
				d.RetryAfter = headgate.Never
			} else {
				d.RetryAfter, err = parseSpan(value)
			}
		case "reset":
			d.ResetAfter, err = parseSpan(value)
		case "delay":
			d.Delay, err = parseSpan(value)
		default:
			return fmt.Errorf("%q is not remaining, retry, reset or delay", w)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if !seen["remaining"] || d.Allowed == (d.RetryAfter != 0) || !d.Allowed && d.Delay != 0 {
		return fmt.Errorf("%q: say what is remaining, with a retry if and only if it is denied, and a delay only if it is allowed", strings.Join(words, " "))
	}
	return nil
}

// parseSpan reads a duration that is not negative.
func parseSpan(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err == nil && d < 0 {
		err = fmt.Errorf("duration %q is negative", s)
	}
	return d, err
}
