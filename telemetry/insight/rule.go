package insight

import (
	"cmp"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
)

const (
	// Kept is how long figures are kept.
	Kept = 2 * time.Hour
	// Step is the length of time over which the counts of keys are added up.
	Step = 10 * time.Minute
	// MaxRuleBytes is the maximum memory of one rule, in bytes.
	MaxRuleBytes = 250_000

	minutes     = int64(Kept / time.Minute)
	stepMinutes = int64(Step / time.Minute)
	steps       = int(Kept / Step)
)

// The views: what keys are counted by.
const (
	byUse    = iota // units that were charged
	byDenied        // denials
	byShadow        // denials in shadow
	byNear          // decisions that left less than a fifth of the limit
	byAway          // requests that the store did not decide: failed, let in, or decided by a share

	views
)

// bound has the limits on one view.
type bound struct {
	most   int // keys that are followed at a time
	room   int // bytes that these keys may take
	closed int // keys that are kept of a past step
	cells  int // keys that are kept of a past minute
}

// bounds are the limits on each view. A test checks that they fit into MaxRuleBytes.
var bounds = [views]bound{
	byUse:    {most: 384, room: 20 << 10, closed: 32, cells: 16},
	byDenied: {most: 256, room: 12 << 10, closed: 24, cells: 16},
	byShadow: {most: 256, room: 12 << 10, closed: 12},
	byNear:   {most: 128, room: 6 << 10, closed: 12},
	byAway:   {most: 128, room: 6 << 10, closed: 12},
}

// closedRoom is the maximum size of one view's keys in a past step, in bytes.
const closedRoom = 1 << 10

// Distribution is the number of classes for the used part of a limit.
const Distribution = 20

// maxLimits and maxTiers are how many limits and tiers are distinguished within a rule. The last
// place of each is for all others.
const (
	maxLimits = 32
	maxTiers  = 16
)

// ruleFigures has everything that is recorded about one rule.
type ruleFigures struct {
	name   string
	series [minutes]counts
	past   Counts // of the minutes that are over, since the rule is followed
	views  [views]sketch
	// begin is the first minute of the current step, which the sketches count.
	begin    int64
	turned   int64 // the current minute
	last     int64 // the minute in which something was counted last
	step     stepFigures
	closed   [steps]*stepFigures
	cells    [minutes]*[2][]cell // for the views byUse and byDenied
	limits   []limitFigures
	tiers    []tierFigures
	borrowed int // bytes
	memory   *memory
	// borrow is borrowBytes as a value, made once to avoid allocations.
	borrow budget
}

// memory is the budget that all rules share, in bytes.
type memory struct {
	used, most int
	refused    int64 // how often a request for memory was refused
}

// borrowBytes takes n bytes from the budget. It reports false, and takes nothing, if the rule or
// all rules together would exceed their bound.
func (f *ruleFigures) borrowBytes(n int) bool {
	if f.borrowed+n > MaxRuleBytes || f.memory.used+n > f.memory.most {
		f.memory.refused++
		return false
	}
	f.borrowed += n
	f.memory.used += n
	return true
}

func (f *ruleFigures) giveBack(n int) {
	f.borrowed -= n
	f.memory.used -= n
}

// counts are the checks or requests of a minute by outcome; see [Counts].
type counts struct{ allowed, denied, shadow, uncharged, failed, open, local, listed, passed uint32 }

func (c *counts) add(o outcome, by headgate.Source) {
	switch o {
	case wasAllowed:
		c.allowed++
		if by == headgate.SourceOpen {
			c.open++
		}
	case wasDenied:
		c.denied++
	case wasShadow:
		c.shadow++
	case wasUncharged:
		c.uncharged++
	case wasFailed:
		c.failed++
	}
	if by == headgate.SourceLocal && o != wasFailed {
		c.local++
	}
}

func (c *counts) join(o counts) {
	c.allowed += o.allowed
	c.denied += o.denied
	c.shadow += o.shadow
	c.uncharged += o.uncharged
	c.failed += o.failed
	c.open += o.open
	c.local += o.local
	c.listed += o.listed
	c.passed += o.passed
}

// stepFigures has the figures of a step. Its views are set only in a past step.
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
	first, last  uint8 // minutes of the step
	cut          bool
}

// at returns the i-th element of the list, which it extends with zero values as needed.
func at[T any](list *[]T, i int) *T {
	for len(*list) <= i {
		var zero T
		*list = append(*list, zero)
	}
	return &(*list)[i]
}

// cell is the weight of one key in one minute.
type cell struct {
	hash   uint64
	weight int64
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

// newRuleFigures returns the figures of a new rule, or nil if there is no memory for it.
func newRuleFigures(name string, minute int64, all *memory) *ruleFigures {
	f := &ruleFigures{name: name, last: minute, turned: minute, memory: all}
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

// turn begins a minute. Nothing was counted in the minutes since the last one.
func (f *ruleFigures) turn(minute int64) {
	if minute <= f.turned {
		return
	}
	f.closeMinute(f.turned)
	f.past.Add(f.series[f.turned%minutes].wide())
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

// closeMinute keeps the weights of the busiest keys of a past minute.
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

// closeStep closes the past step, and begins the step of the given minute.
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

// close returns what is kept of a sketch whose step is over: at most the given number of keys, the
// largest, in at most room bytes.
func (s *sketch) close(most, room int) closedView {
	c := closedView{total: s.total, absent: s.absent()}
	largest := s.sorted()
	if len(largest) > most {
		c.absent = max(c.absent, largest[most].count)
		largest = largest[:most]
	}
	c.keys = make([]closedKey, len(largest))
	lengths := make([]int, len(largest))
	for i, e := range largest {
		lengths[i] = len(e.key)
	}
	length := longest(lengths, room)
	for i, e := range largest {
		key := e.key
		if len(key) > length {
			key, e.cut = key[:length], true
		}
		c.keys[i] = closedKey{e.hash, e.count, e.error, string(key), e.used, e.tier, e.first, e.last, e.cut}
	}
	return c
}

// longest returns the length to which keys of these lengths are cut so that all fit in room bytes. So
// one long key does not leave the others without a name. It sorts the lengths.
func longest(lengths []int, room int) int {
	slices.Sort(lengths)
	for i, n := range lengths {
		if share := room / (len(lengths) - i); n > share {
			return share
		}
		room -= n
	}
	return math.MaxInt
}

// sorted returns copies of the entries, the largest first.
func (s *sketch) sorted() []entry {
	all := slices.Clone(s.entries)
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.hash, b.hash))
	})
	return all
}

// limit returns the index of a limit in the rule's list.
func (f *ruleFigures) limit(l *headgate.Limit) int {
	for i := range f.limits {
		if f.limits[i].limit == l {
			return i
		}
	}
	text := l.String()
	for i := range f.limits {
		if f.limits[i].text == text {
			f.limits[i].limit = l // the same limit in a newer version of the policy
			return i
		}
	}
	if len(f.limits) == maxLimits-1 || !f.borrow(limitBytes) {
		return maxLimits - 1
	}
	f.limits = append(f.limits, limitFigures{l, text})
	return len(f.limits) - 1
}

// tier returns the index of a tier in the rule's list.
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

// other names the tiers and limits that are not distinguished.
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
