package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// Mistake is one thing that is wrong with a policy file.
type Mistake struct {
	// File is the name that the file was loaded under.
	File string
	// Line and Column count from 1; a column is a character. Both are zero if
	// the mistake lies in no one place.
	Line, Column int
	// Text says what is wrong, with the numbers and what to do.
	Text string
}

// String writes the mistake as file:line:column: text.
func (m Mistake) String() string {
	if m.Line == 0 {
		return fmt.Sprintf("%s: %s", m.File, m.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
}

// Error lists every mistake in a policy file, in the order of the file.
type Error struct{ Mistakes []Mistake }

// Error writes one mistake per line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, headgate.ErrInvalid) true.
func (e *Error) Is(target error) bool { return target == headgate.ErrInvalid }

// place is a position in the file. The zero place is the file as a whole.
type place struct{ line, column int }

// mistakes collects what is wrong with one file and what it reads. What is there
// already is not added again: aliases and like have one part of a file read in
// several places.
type mistakes struct {
	file string
	list []Mistake
	seen map[Mistake]bool
	more int
	// again is how many were there already.
	again int
}

// maxMistakes bounds what a file that is all mistakes can cost.
const maxMistakes = 1000

func (m *mistakes) add(at place, format string, args ...any) {
	m.keep(Mistake{m.file, at.line, at.column, fmt.Sprintf(format, args...)})
}

func (m *mistakes) keep(one Mistake) {
	if m.seen[one] {
		m.again++
		return
	}
	if len(m.list) == maxMistakes {
		m.more++
		return
	}
	if m.seen == nil {
		m.seen = make(map[Mistake]bool)
	}
	m.seen[one] = true
	m.list = append(m.list, one)
}

// err returns the mistakes as an [*Error], or nil if there are none.
func (m *mistakes) err() error {
	if m.list == nil {
		return nil
	}
	slices.SortStableFunc(m.list, func(a, b Mistake) int {
		other := func(x Mistake) int {
			if x.File == m.file {
				return 0
			}
			return 1
		}
		return cmp.Or(other(a)-other(b), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if m.more > 0 {
		m.list = append(m.list, Mistake{File: m.file, Text: fmt.Sprintf("and %d more mistakes", m.more)})
	}
	return &Error{m.list}
}

// count is how many mistakes were added so far.
func (m *mistakes) count() int { return len(m.list) + m.more + m.again }
