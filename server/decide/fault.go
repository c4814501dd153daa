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

// FaultKind says what a fault is about. Of several faults in one request, the one with
// the greatest kind decides what the request is refused with: whether a rule is there
// can well be another question once the rest is right.
type FaultKind uint8

const (
	// UnknownRule is a rule that the policy does not have.
	UnknownRule FaultKind = iota
	// OutOfRange is a value that its field cannot have, or a field that is missing.
	OutOfRange
	// Malformed is a request that the door could not read.
	Malformed
)

// Place is where in a request a fault is. The zero Place is the request as a whole.
type Place struct {
	// List is the field that Index or Name is in, such as "checks", or "".
	List string
	// Index is which element of the list it is, counted from 1; 0 if it is none.
	Index int
	// Name is the name of a field, or of an entry of the descriptor.
	Name string
}

// check is the place of a field of one of the checks, which count from 0 here.
func check(i int, name string) Place { return Place{List: "checks", Index: i + 1, Name: name} }

// maxPlace bounds what is repeated of a name that the caller made up.
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
	// Text says what is wrong with what is at the place, with the numbers.
	Text string
}

// Faults are the mistakes in one request: MaxFaults at most.
type Faults []Fault

// MaxFaults bounds what one hostile request can make an answer hold.
const MaxFaults = 32

// Add adds a fault, unless there are MaxFaults. What follows the place is as for
// fmt.Sprintf.
func (f *Faults) Add(kind FaultKind, p Place, format string, args ...any) {
	if len(*f) < MaxFaults {
		*f = append(*f, Fault{kind, p, fmt.Sprintf(format, args...)})
	}
}

// AddError adds what an error says of the value at the place. The fields that an
// [*headgate.InvalidError] names are those of the value, if the value has fields.
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

// Kind is the greatest kind of the faults, of which there must be one.
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

// number checks the bounds of a number. What the number is for follows the bounds.
func (f *Faults) number(p Place, n, least, most int64, meaning string) {
	if n < least || n > most {
		f.Add(OutOfRange, p, "is %s, must be %d to %d%s", said(n), least, most, meaning)
	}
}

// said is a number for a message. Doors that read numbers of any length hold them at the
// bounds of an int64.
func said(n int64) string {
	switch n {
	case math.MaxInt64:
		return "too large"
	case math.MinInt64:
		return "too small"
	}
	return strconv.FormatInt(n, 10)
}
