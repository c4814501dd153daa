package flow

import (
	"fmt"

	"github.com/headgate/headgate"
)

// Class says how much a request matters when not all requests can be served. The
// zero Class is [Critical]. A higher value matters more.
type Class int8

const (
	// CriticalPlus is for requests whose failure many users see at once: a payment,
	// a login. Keep them below a small part of the capacity.
	CriticalPlus Class = 1
	// Critical is for requests that a user waits for. It is the default.
	Critical Class = 0
	// SheddablePlus is for work that may fail for minutes and is tried again by
	// itself, such as a batch.
	SheddablePlus Class = -1
	// Sheddable is for work that may fail for hours: prefetching, reindexing.
	Sheddable Class = -2
)

// Classes is the number of classes.
const Classes = 4

// classNames are in the order of [Class.Rank].
var classNames = [Classes]string{"critical_plus", "critical", "sheddable_plus", "sheddable"}

// Rank returns the position of the class in the order of importance, for use as an index: 0 for
// CriticalPlus to 3 for Sheddable. It is meaningful only for a known class.
func (c Class) Rank() int { return int(CriticalPlus - c) }

// ClassOfRank returns the class whose [Class.Rank] is rank, 0 to 3.
func ClassOfRank(rank int) Class { return CriticalPlus - Class(rank) }

func (c Class) known() bool { return c >= Sheddable && c <= CriticalPlus }

// String returns "critical_plus", "critical", "sheddable_plus" or "sheddable".
func (c Class) String() string {
	if c.known() {
		return classNames[c.Rank()]
	}
	return fmt.Sprintf("class(%d)", int8(c))
}

// ParseClass returns the class of a name as [Class.String] writes it. The error is a
// [*headgate.InvalidError].
func ParseClass(name string) (Class, error) {
	for rank, known := range classNames {
		if name == known {
			return ClassOfRank(rank), nil
		}
	}
	var problems headgate.Problems
	problems.Add("class", "the class %.40q is none, must be one of %q", name, classNames)
	return 0, problems.Err("request")
}

// MarshalText returns the name of the class. It fails if the class is not known.
func (c Class) MarshalText() ([]byte, error) {
	if !c.known() {
		var problems headgate.Problems
		problems.Add("class", "%v is no class, must be %v to %v", c, Sheddable, CriticalPlus)
		return nil, problems.Err("request")
	}
	return []byte(c.String()), nil
}

// UnmarshalText reads a name as [ParseClass] does.
func (c *Class) UnmarshalText(text []byte) error {
	parsed, err := ParseClass(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}
