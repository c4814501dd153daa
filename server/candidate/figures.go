package candidate

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/server/decide"
)

// outcome is what came of a comparison.
type outcome uint8

const (
	bothAdmitted outcome = iota
	bothDenied
	newlyDenied
	newlyAdmitted
	// undecidable is a request that the candidate has no answer for: one that
	// names a rule that it has not, for instance.
	undecidable

	outcomes // the number of them
)

// outcomeNames are the names of the outcomes, as labels of metrics.
var outcomeNames = [outcomes]string{"both_admitted", "both_denied", "newly_denied", "newly_admitted", "undecidable"}

// missed is why a request was not compared.
type missed uint8

const (
	dropped    missed = iota // the queue was full
	undecided                // the service itself had no decision
	unanswered               // the candidate's store had none

	misses // the number of them
)

var missedNames = [misses]string{"dropped", "undecided", "unanswered"}

// figures are the counts of two policies.
type figures struct {
	live, candidate decide.Policy
	since           time.Time
	outcomes        [outcomes]atomic.Int64
	missed          [misses]atomic.Int64
	why             atomic.Pointer[string] // of the last request that was undecidable

	mu     sync.Mutex // guards what follows
	splits map[split]int64
	others int64 // differences that splits has no room for

	denied, admitted sketch
}

// split is by what differences are counted.
type split struct {
	outcome outcome
	by      Denier
	tier    string
}

// maxSplits bounds how many kinds of differences are counted each for itself. A
// policy that has more rules and tiers than that is not read by people.
const maxSplits = 20_000

func newFigures(live, candidate decide.Policy, since time.Time) *figures {
	return &figures{live: live, candidate: candidate, since: since, splits: make(map[split]int64)}
}

// of reports whether the figures are those of the two policies.
func (f *figures) of(live, candidate decide.Policy) bool {
	return f != nil && f.live == live && f.candidate == candidate
}

// differ counts a difference by who decided it.
func (f *figures) differ(s split) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.splits[s]; !known && len(f.splits) >= maxSplits {
		f.others++
		return
	}
	f.splits[s]++
}

// Denier is what denies a request: a rule, or an entry of a deny list.
type Denier struct {
	Rule string `json:"rule,omitempty"`
	List string `json:"list,omitempty"`
}

func (d Denier) compare(o Denier) int {
	return cmp.Or(strings.Compare(d.Rule, o.Rule), strings.Compare(d.List, o.List))
}
