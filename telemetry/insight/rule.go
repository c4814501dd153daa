package insight

import (
	"cmp"
	"slices"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
)

const (
	// Kept is how far back figures reach.
	Kept = 2 * time.Hour
	// Step is how long keys are counted together.
	Step = 10 * time.Minute
	// MaxRuleBytes is the most that one rule takes.
	MaxRuleBytes = 250_000

	minutes     = int64(Kept / time.Minute)
	stepMinutes = int64(Step / time.Minute)
	steps       = int(Kept / Step)
)

// What keys are counted by.
const (
	byUse    = iota // units that were charged
	byDenied        // denials
	byShadow        // denials that did not count
	byNear          // decisions that left less than a fifth of the limit

	views
)

// bound is how much of a view is kept.
type bound struct {
	most   int // keys that are followed
	room   int // bytes of these keys
	closed int // keys of a step that is over
	cells  int // keys of a minute that is over
}

// bounds follow from MaxRuleBytes; a test adds them up.
var bounds = [views]bound{
	byUse:    {most: 384, room: 20 << 10, closed: 32, cells: 16},
	byDenied: {most: 256, room: 12 << 10, closed: 24, cells: 16},
	byShadow: {most: 256, room: 12 << 10, closed: 12},
	byNear:   {most: 128, room: 6 << 10, closed: 12},
}

// closedRoom is how many bytes the keys of one view may take in a step that is over.
const closedRoom = 1 << 10

// Distribution is how many classes the used part of a limit is sorted into.
const Distribution = 20

// maxLimits and maxTiers bound what is told apart within a rule; the last one is all others.
const (
	maxLimits = 32
	maxTiers  = 16
)

// ruleFigures is what is known of one rule.
type ruleFigures struct {
	name   string
	series [minutes]counts
	views  [views]sketch
	// begin is the first minute of the step that the sketches count.
	begin    int64
	turned   int64 // the current minute
	last     int64 // the minute in which something was counted last
	step     stepFigures
	closed   [steps]*stepFigures
	cells    [minutes]*[2][]cell // of the views byUse and byDenied
	limits   []limitFigures
	tiers    []tierFigures
	borrowed int // bytes
	all      *memory
	// borrow is the method of that name, made once.
	borrow budget
}

// memory is what all rules share.
type memory struct {
	used, most int
	refused    int64 // how often there was not enough
}

// borrowBytes reports whether the rule may take so many bytes more.
func (f *ruleFigures) borrowBytes(n int) bool {
	if f.borrowed+n > MaxRuleBytes || f.all.used+n > f.all.most {
		f.all.refused++
		return false
	}
	f.borrowed += n
	f.all.used += n
	return true
}

func (f *ruleFigures) giveBack(n int) {
	f.borrowed -= n
	f.all.used -= n
}

// counts are the checks of a minute by what became of them.
type counts struct{ allowed, denied, shadow, uncharged uint32 }

func (c *counts) add(o outcome) {
	switch o {
	case wasAllowed:
		c.allowed++
	case wasDenied:
		c.denied++
	case wasShadow:
		c.shadow++
	case wasUncharged:
		c.uncharged++
	}
}

// stepFigures is what is left of a step; views only of one that is over.
type stepFigures struct {
	begin  int64
	used   [Distribution]uint32
	views  [views]closedView
	tiers  []counts    // in the order of the rule's tiers
	limits [][2]uint32 // denied and shadow, in the order of the rule's limits
}

type closedView struct {
	total, absent int64
	keys          []closedKey
}

type closedKey struct {
	hash         uint64
	count, error int64
	key          string
	used         uint16
	tier         uint8
	cut          bool
}

// at is the i-th of a list that is as long as it has to be.
func at[T any](list *[]T, i int) *T {
	for len(*list) <= i {
		var zero T
		*list = append(*list, zero)
	}
	return &(*list)[i]
}

// cell is what one key had in one minute.
type cell struct {
	hash   uint64
	weight uint32
}

type limitFigures struct {
	limit *headgate.Limit
	text  string
}

type tierFigures struct{ name string }

const (
	ruleBytes      = int(unsafe.Sizeof(ruleFigures{}))
	stepBytes      = int(unsafe.Sizeof(stepFigures{}))
	closedKeyBytes = int(unsafe.Sizeof(closedKey{}))
	countsBytes    = int(unsafe.Sizeof(counts{}))
	cellBytes      = int(unsafe.Sizeof(cell{}))
	cellsBytes     = int(unsafe.Sizeof([2][]cell{}))
	limitBytes     = int(unsafe.Sizeof(limitFigures{})) + 64 // with its text
	tierBytes      = int(unsafe.Sizeof(tierFigures{})) + 32
)

// newRuleFigures begins a rule. It is nil if there is no memory for it.
func newRuleFigures(name string, minute int64, all *memory) *ruleFigures {
	f := &ruleFigures{name: name, last: minute, turned: minute, all: all}
	f.borrow = f.borrowBytes
	if !f.borrow(ruleBytes + len(name)) {
		return nil
	}
	f.begin = minute - minute%stepMinutes
	f.step.begin = f.begin
	for i := range f.views {
		f.views[i].most, f.views[i].room = bounds[i].most, bounds[i].room
	}
	return f
}

// turn begins a minute: those since the last one had nothing.
func (f *ruleFigures) turn(minute int64) {
	if minute <= f.turned {
		return
	}
	f.closeMinute(f.turned)
	for m := max(f.turned+1, minute-minutes+1); m <= minute; m++ {
		f.series[m%minutes] = counts{}
		if old := f.cells[m%minutes]; old != nil {
			f.giveBack(cellsBytes + cellBytes*(cap(old[0])+cap(old[1])))
			f.cells[m%minutes] = nil
		}
	}
	f.turned = minute
	if minute >= f.begin+stepMinutes {
		f.closeStep(minute)
	}
}

// closeMinute keeps what the busiest keys had in a minute that is over.
func (f *ruleFigures) closeMinute(minute int64) {
	var made [2][]cell
	var busy []cell
	for v := range made {
		busy = busy[:0]
		s := &f.views[v]
		for i := range s.entries {
			if e := &s.entries[i]; e.minute > 0 {
				busy = append(busy, cell{e.hash, e.minute})
				e.minute = 0
			}
		}
		slices.SortFunc(busy, func(a, b cell) int { return cmp.Compare(b.weight, a.weight) })
		made[v] = slices.Clip(slices.Clone(busy[:min(len(busy), bounds[v].cells)]))
	}
	bytes := cellsBytes + cellBytes*(cap(made[0])+cap(made[1]))
	if len(made[0])+len(made[1]) > 0 && f.borrow(bytes) {
		f.cells[minute%minutes] = &made
	}
}

// closeStep puts away the step that is over, and begins the one of the minute.
func (f *ruleFigures) closeStep(minute int64) {
	over := f.step
	for v := range f.views {
		over.views[v] = f.views[v].close(bounds[v].closed, closedRoom)
		f.views[v].reset()
	}
	f.begin = minute - minute%stepMinutes
	f.step = stepFigures{begin: f.begin}
	at := int(over.begin/stepMinutes) % steps
	for i, c := range f.closed {
		if c != nil && (i == at || c.begin <= f.begin-int64(steps)*stepMinutes) {
			f.giveBack(c.bytes())
			f.closed[i] = nil
		}
	}
	if f.borrow(over.bytes()) {
		f.closed[at] = &over
	}
}

func (s *stepFigures) bytes() int {
	n := stepBytes + cap(s.tiers)*countsBytes + cap(s.limits)*8
	for v := range s.views {
		n += s.views[v].bytes()
	}
	return n
}

func (v *closedView) bytes() int {
	n := closedKeyBytes * cap(v.keys)
	for i := range v.keys {
		n += len(v.keys[i].key)
	}
	return n
}

// close is what is kept of a sketch whose step is over: the largest.
func (s *sketch) close(most, room int) closedView {
	c := closedView{total: s.total, absent: s.absent()}
	largest := s.sorted()
	if len(largest) > most {
		c.absent = max(c.absent, largest[most].count)
		largest = largest[:most]
	}
	c.keys = make([]closedKey, len(largest))
	for i, e := range largest {
		key := e.key
		if len(key) > room {
			key, e.cut = key[:room], true
		}
		room -= len(key)
		c.keys[i] = closedKey{e.hash, e.count, e.error, string(key), e.used, e.tier, e.cut}
	}
	return c
}

// sorted are copies of the entries, the largest first.
func (s *sketch) sorted() []entry {
	all := slices.Clone(s.entries)
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.hash, b.hash))
	})
	return all
}

// limit is the place of a limit in the rule's list.
func (f *ruleFigures) limit(l *headgate.Limit) int {
	for i := range f.limits {
		if f.limits[i].limit == l {
			return i
		}
	}
	text := l.String()
	for i := range f.limits {
		if f.limits[i].text == text {
			f.limits[i].limit = l // of a newer policy, most likely
			return i
		}
	}
	if len(f.limits) == maxLimits-1 || !f.borrow(limitBytes) {
		return maxLimits - 1
	}
	f.limits = append(f.limits, limitFigures{l, text})
	return len(f.limits) - 1
}

// tier is the place of a tier in the rule's list.
func (f *ruleFigures) tier(name string) uint8 {
	for i := range f.tiers {
		if f.tiers[i].name == name {
			return uint8(i)
		}
	}
	if len(f.tiers) == maxTiers-1 || !f.borrow(tierBytes) {
		return maxTiers - 1
	}
	f.tiers = append(f.tiers, tierFigures{name})
	return uint8(len(f.tiers) - 1)
}

// other stands for tiers and limits beyond those that are told apart.
const other = "(other)"

func (f *ruleFigures) tierName(i uint8) string {
	if int(i) < len(f.tiers) {
		return f.tiers[i].name
	}
	return other
}

func (f *ruleFigures) limitText(i int) string {
	if i < len(f.limits) {
		return f.limits[i].text
	}
	return other
}
