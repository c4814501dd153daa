package decide

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
)

// FaultKind is the kind of a fault. If a request has several faults, the greatest kind decides how
// the request is refused, because a lesser fault may be gone once the greater one is corrected.
type FaultKind uint8

const (
	// UnknownRule is a rule that the policy does not have.
	UnknownRule FaultKind = iota
	// OutOfRange is a value that its field cannot have, or a field that is missing.
	OutOfRange
	// Malformed is a request that the door could not read.
	Malformed
)

// Place is the place of a fault in a request. The zero Place is the request as a whole.
type Place struct {
	// List is the field that contains Index or Name, such as "checks", or "".
	List string
	// Index is the number of the element in the list, counted from 1; 0 if the fault is not about
	// an element.
	Index int
	// Name is the name of a field, or of an entry of the descriptor.
	Name string
}

// check returns the place of a field of check i, counted from 0.
func check(i int, name string) Place { return Place{List: "checks", Index: i + 1, Name: name} }

// maxPlace is how many bytes of a name that the caller has made up are repeated in a message.
const maxPlace = 64

// String writes the place as in JSON: "cost", "descriptor.ip", "checks[0].key", or ""
// for the request as a whole.
func (p Place) String() string {
	var b strings.Builder
	b.WriteString(p.List)
	if p.Index > 0 {
		b.WriteString("[" + strconv.Itoa(p.Index-1) + "]")
	}
	if p.Name == "" {
		return b.String()
	}
	if b.Len() > 0 {
		b.WriteByte('.')
	}
	if len(p.Name) > maxPlace {
		return b.String() + strings.ToValidUTF8(p.Name[:maxPlace], "") + "…"
	}
	return b.String() + p.Name
}

// Fault is one mistake in a request.
type Fault struct {
	Kind  FaultKind
	Place Place
	// Text says what is wrong at the place, with the numbers.
	Text string
}

// Faults are the mistakes in one request: MaxFaults at most.
type Faults []Fault

// MaxFaults is the maximum number of faults of a request, which bounds the answer to a hostile one.
const MaxFaults = 32

// Add adds a fault, unless there are MaxFaults already. The format and its arguments are those of
// fmt.Sprintf.
func (f *Faults) Add(kind FaultKind, p Place, format string, args ...any) {
	if len(*f) < MaxFaults {
		*f = append(*f, Fault{kind, p, fmt.Sprintf(format, args...)})
	}
}

// AddError adds the faults that an error reports about the value at the place. fields says that the
// value has fields, which an [*headgate.InvalidError] names.
func (f *Faults) AddError(p Place, fields bool, err error) {
	var invalid *headgate.InvalidError
	switch {
	case errors.Is(err, policy.ErrUnknownRule):
		if fields {
			p.Name = "rule"
		}
		f.Add(UnknownRule, p, "%s", errtext.Text(err))
	case errors.As(err, &invalid):
		for _, problem := range invalid.Problems {
			if fields {
				p.Name = problem.Field
			}
			f.Add(OutOfRange, p, "%s", problem.Text)
		}
	default:
		f.Add(OutOfRange, p, "%s", errtext.Text(err))
	}
}

// Kind returns the greatest kind of the faults. There must be at least one.
func (f Faults) Kind() FaultKind {
	worst := UnknownRule
	for i := range f {
		worst = max(worst, f[i].Kind)
	}
	return worst
}

// Summary says in one sentence how many faults there are.
func (f Faults) Summary() string {
	switch n := len(f); {
	case n >= MaxFaults:
		return fmt.Sprintf("the request has at least %d mistakes", n)
	case n > 1:
		return fmt.Sprintf("the request has %d mistakes", n)
	}
	return "the request has a mistake"
}

// Texts returns the texts of the faults.
func (f Faults) Texts() []string {
	texts := make([]string, len(f))
	for i := range f {
		texts[i] = f[i].Text
	}
	return texts
}

// number adds a fault if n is out of bounds. In its text, meaning follows the bounds.
func (f *Faults) number(p Place, n, least, most int64, meaning string) {
	if n < least || n > most {
		f.Add(OutOfRange, p, "is %s, must be %d to %d%s", formatInt(n), least, most, meaning)
	}
}

// formatInt formats a number for a message. Doors that read numbers of any length clamp them to an
// int64.
func formatInt(n int64) string {
	switch n {
	case math.MaxInt64:
		return "too large"
	case math.MinInt64:
		return "too small"
	}
	return strconv.FormatInt(n, 10)
}
