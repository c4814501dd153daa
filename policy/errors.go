package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
)

// ErrUnknownRule is what errors.Is finds in an [*UnknownRuleError].
var ErrUnknownRule = errors.New("headgate: unknown rule")

// UnknownRuleError says that a set has no rule of that name.
type UnknownRuleError struct {
	// Name is the name that was asked for.
	Name string
	// Known are the names of the first few rules of the set.
	Known []string
	// More is how many other rules the set has.
	More int
}

// Error names the unknown rule, and the Known ones.
func (e *UnknownRuleError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "headgate: there is no rule %s", Quote(e.Name))
	if len(e.Known) == 0 {
		b.WriteString("; the policy has no rules")
		return b.String()
	}
	b.WriteString("; there are ")
	for i, name := range e.Known {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, " and %d more", e.More)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrUnknownRule) true.
func (e *UnknownRuleError) Is(target error) bool { return target == ErrUnknownRule }

// Position is a place in a file. A rule that was written in Go has the zero Position.
type Position struct {
	File string `json:"file"`
	// Line and Column count from 1; a column is a character.
	Line   int `json:"line"`
	Column int `json:"column"`
}

// String writes the position as file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Mistake is one mistake in the rules or the options given to [New].
type Mistake struct {
	// Index is the rule's place in the list, from 0. It is -1 if the mistake is not in a rule.
	Index int
	// Rule is the rule's name, if it has one.
	Rule string
	// Field is where in the rule the mistake lies: "name", "match", "per",
	// "limits", "tariff", "overrides", "cost", "soft", "mode", "enforce" or
	// "ignore"; where it lies in the options, "deny", "allow", "subjects", "entries"
	// or "ignore". Numbers count from 0: "match.0" is the first condition,
	// "overrides.1.match.0" that of the second override.
	Field string
	// Pos is the position of the rule, or of the entry of a list or table.
	Pos Position
	// Text says what is wrong, with the numbers, and what to do about it.
	Text string
}

// String writes the mistake with its position or, without one, its place in the
// list.
func (m Mistake) String() string {
	var b strings.Builder
	if m.Pos != (Position{}) {
		b.WriteString(m.Pos.String())
		b.WriteString(": ")
	}
	switch {
	case m.Rule != "":
		fmt.Fprintf(&b, "rule %q: ", m.Rule)
	case m.Index >= 0:
		fmt.Fprintf(&b, "rule %d: ", m.Index+1)
	}
	b.WriteString(m.Text)
	return b.String()
}

// Error lists every mistake in the rules given to [New].
type Error struct{ Mistakes []Mistake }

// Error writes one mistake per line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("headgate: policy: ")
	for i, m := range e.Mistakes {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(m.String())
	}
	return b.String()
}

// Is makes errors.Is(err, headgate.ErrInvalid) true.
func (e *Error) Is(target error) bool { return target == headgate.ErrInvalid }
