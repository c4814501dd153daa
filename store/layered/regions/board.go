package regions

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// board is a document of the region's store, by which its processes have one share: they add what
// they were asked for, and one of them asks the home and writes what is lent.
type board struct {
	// Settings are those that the regions share, and Since is when the process began that wrote
	// them, on the region's clock. Processes that began earlier with others have nothing lent.
	Settings string `json:"s"`
	Since    int64  `json:"t"`
	// Own is the division by the settings, and Before are those by others that were shared before.
	Own    division   `json:"o"`
	Before []division `json:"b,omitempty"`
	// Came names that the region has come from other settings, until the home knows for sure.
	Came string `json:"m,omitempty"`
	// Leader asks the home. Turn counts what it has published. That lasts for Left from then on, and
	// not after Until on the region's clock.
	Leader string           `json:"l,omitempty"`
	Turn   int64            `json:"n,omitempty"`
	Left   time.Duration    `json:"d,omitempty"`
	Until  headgate.Instant `json:"u,omitempty"`
	// Sure names the last write of this region that it has read again at the home.
	Sure int64 `json:"e,omitempty"`
	// Lent is set once anything was lent to this region.
	Lent     bool                `json:"x,omitempty"`
	Subjects map[string]*subject `json:"k,omitempty"`
}

// subject is a key of a rule.
type subject struct {
	Rule   string `json:"r"`
	Tag    string `json:"g,omitempty"`
	Key    []byte `json:"k,omitempty"`
	Limits []text `json:"l"`
	// Asked are units that requests asked for since the leader took note.
	Asked int64 `json:"a,omitempty"`
	// Lent are units by slots.
	Lent map[uint64]int64 `json:"n,omitempty"`
	// Full is how long each of those stays in use, by the limit for which they were lent.
	Full map[uint64]time.Duration `json:"f,omitempty"`
	// Rates are the counts of the region's parts of buckets. All its processes have them, whichever
	// version of the rule they have: the counter keeps to one rate, not to the sum of several.
	Rates map[uint64]int64 `json:"q,omitempty"`
}

// text is a limit as it is written in rules.
type text struct {
	Algorithm string `json:"a"`
	Limit     string `json:"l"`
}

// maxSubjects bounds a board.
const maxSubjects = 500

func newSubject(r *headgate.Rule, key string) *subject {
	s := &subject{Rule: r.Name(), Tag: r.Tag(), Key: []byte(key)}
	for i := range r.Limits() {
		l := &r.Limits()[i]
		s.Limits = append(s.Limits, text{l.Algorithm.String(), l.String()})
	}
	return s
}

// rule is the rule of a subject.
func (s *subject) rule() (*headgate.Rule, error) {
	limits := make([]headgate.Limit, len(s.Limits))
	for i, t := range s.Limits {
		a, err := headgate.ParseAlgorithm(t.Algorithm)
		if err == nil {
			limits[i], err = headgate.ParseLimit(a, t.Limit)
		}
		if err != nil {
			return nil, err
		}
	}
	r, err := headgate.NewRule(s.Rule, limits...)
	if err != nil {
		return nil, err
	}
	return r.WithTag(s.Tag)
}

// units are the units of a rule's limits that are lent. Where the rule is another version, whose units
// have more of the rate, there are fewer.
func (s *subject) units(of *headgate.Rule) map[uint64]int64 {
	units := make(map[uint64]int64, len(s.Lent))
	for i := range of.Limits() {
		l := &of.Limits()[i]
		n := s.Lent[l.Slot()]
		if long, mine := s.Full[l.Slot()], full(l); mine < long {
			n = int64(float64(n) * float64(mine) / float64(long))
		}
		units[l.Slot()] = n
	}
	return units
}

// with returns a board with other settings, after the ones of b.
func (b *board) with(settings string, own division, since int64) *board {
	n := &board{Settings: settings, Own: own, Since: since, Lent: b.Lent, Turn: b.Turn, Subjects: map[string]*subject{}}
	if b.Settings != "" {
		n.Came, n.Lent = rand.Text(), true // Units by other settings may be in use.
		n.Before = append(slices.DeleteFunc(slices.Clone(b.Before), func(d division) bool {
			return d.Percent == b.Own.Percent && d.Regions == b.Own.Regions && d.Place == b.Own.Place
		}), b.Own)
	}
	return n
}

func readBoard(d *store.Document) (*board, error) {
	b := &board{Subjects: map[string]*subject{}}
	if len(d.Value) == 0 {
		return b, nil
	}
	if err := json.Unmarshal(d.Value, b); err != nil {
		return nil, fmt.Errorf("%w: the region's shares cannot be read: %w", headgate.ErrUnavailable, err)
	}
	return b, nil
}

func (b *board) bytes() []byte {
	out, _ := json.Marshal(b) // Numbers and texts can always be written.
	return out
}
