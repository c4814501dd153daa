package insight

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Counts are checks, or requests, by what became of them.
type Counts struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// Shadow are checks that would have been denied if they were enforced; of requests,
	// those that were admitted or denied with such a check among theirs.
	Shadow int64 `json:"shadow"`
	// Uncharged are checks that their limits admit, of requests that another check denied.
	Uncharged int64 `json:"uncharged,omitempty"`
}

// Add adds others to the counts.
func (c *Counts) Add(o Counts) {
	c.Allowed += o.Allowed
	c.Denied += o.Denied
	c.Shadow += o.Shadow
	c.Uncharged += o.Uncharged
}

// checks is how many checks were counted.
func (c *Counts) checks() int64 { return c.Allowed + c.Denied + c.Shadow + c.Uncharged }

func (c counts) wide() Counts {
	return Counts{int64(c.allowed), int64(c.denied), int64(c.shadow), int64(c.uncharged)}
}

// Minute is what was counted in one minute.
type Minute struct {
	// At is when it began, in seconds since 1970.
	At int64 `json:"at"`
	Counts
}

// Overview is what was counted of all rules.
type Overview struct {
	// Now and Since, in milliseconds since 1970, are when the report was made, and when the
	// recorder was.
	Now   int64 `json:"now"`
	Since int64 `json:"since"`
	// Minutes are the requests of all doors, the last minute last. It is not over yet.
	Minutes []Minute `json:"minutes"`
	// Doors are the requests of each door within the range.
	Doors []DoorCounts `json:"doors"`
	// Rules are those with the most denials, then denials in shadow, then admitted checks,
	// within the range. All is how many were in use.
	Rules []RuleCounts `json:"rules"`
	All   int          `json:"all_rules"`
	Left  Left         `json:"left_out"`
	// Bytes is the memory of all rules.
	Bytes int64 `json:"bytes"`
}

// DoorCounts are the requests of one door.
type DoorCounts struct {
	Door string `json:"door"`
	Counts
}

// RuleCounts are the checks of one rule within a range, and in as much time before it.
type RuleCounts struct {
	Rule string `json:"rule"`
	Counts
	Before Counts `json:"before"`
	// Spark has denials, shadows among them, minute by minute for the last half hour.
	Spark []int64 `json:"spark"`
}

// sparkMinutes is how many minutes a [RuleCounts.Spark] has.
const sparkMinutes = 30

// within is the range in minutes, the current one among them.
func within(of time.Duration) int64 {
	return max(1, min(minutes, int64((of+time.Minute-1)/time.Minute)))
}

func sum(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-n+1, 0); m <= last; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// before is what there was in the n minutes before the last n, as far as it is kept.
func before(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-2*n+1, last-minutes+1, 0); m <= last-n; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// Overview reports what was counted within the range, and the rules to look at first, at
// most so many.
func (r *Recorder) Overview(of time.Duration, most int) Overview {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	n, last := within(of), r.minute
	o := Overview{
		Now: r.options.Now().UnixMilli(), Since: r.since.UnixMilli(), All: len(r.rules), Left: r.leftOut(),
		Bytes: int64(r.memory.used), Minutes: make([]Minute, 0, minutes), Doors: []DoorCounts{}, Rules: []RuleCounts{},
	}
	for m := last - minutes + 1; m <= last; m++ {
		at := Minute{At: m * 60}
		for i := range r.doors {
			at.Add(r.doors[i].series[m%minutes].wide())
		}
		o.Minutes = append(o.Minutes, at)
	}
	for i := range r.doors {
		if c := sum(&r.doors[i].series, last, n); c != (Counts{}) {
			o.Doors = append(o.Doors, DoorCounts{r.doors[i].name, c})
		}
	}
	for _, f := range r.rules {
		c := RuleCounts{Rule: f.name, Counts: sum(&f.series, last, n), Before: before(&f.series, last, n)}
		if c.Counts != (Counts{}) || c.Before != (Counts{}) {
			o.Rules = append(o.Rules, c)
		}
	}
	o.sort(most)
	for i := range o.Rules {
		f, c := r.rules[o.Rules[i].Rule], &o.Rules[i]
		for m := last - sparkMinutes + 1; m <= last; m++ {
			s := f.series[m%minutes]
			c.Spark = append(c.Spark, int64(s.denied)+int64(s.shadow))
		}
	}
	return o
}

func (r *Recorder) leftOut() Left {
	l := r.left
	l.Memory = r.memory.refused
	return l
}

func (o *Overview) sort(most int) {
	slices.SortFunc(o.Rules, func(a, b RuleCounts) int {
		return cmp.Or(
			cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Shadow, a.Shadow), cmp.Compare(b.Allowed, a.Allowed), strings.Compare(a.Rule, b.Rule))
	})
	o.Rules = o.Rules[:min(len(o.Rules), most)]
}

// Rule is what was counted of one rule.
type Rule struct {
	Rule string `json:"rule"`
	// Counts are its checks within the range.
	Counts
	// Begin is where the range of what follows the minutes begins, in seconds since 1970.
	Begin int64 `json:"begin"`
	// Minutes are its checks, the last minute last.
	Minutes []Minute `json:"minutes"`
	// Use, Denied, Shadow and Near are the keys with the most units, denials, denials in
	// shadow, and decisions that left less than a fifth of a limit.
	Use    Top `json:"use"`
	Denied Top `json:"denied_keys"`
	Shadow Top `json:"shadow_keys"`
	Near   Top `json:"near"`
	// Limits are the limits that denied.
	Limits []LimitCounts `json:"limits"`
	// Tiers are the parts by the tiers of the rule's tariff.
	Tiers []TierCounts `json:"tiers"`
	// Used counts admitted checks by how much of their tightest limit was used afterwards,
	// in classes of five percent.
	Used []int64 `json:"used"`
}

// Top are the keys with the largest counts.
type Top struct {
	// Total is the sum over all keys.
	Total int64 `json:"total"`
	// Absent is the most that a key which is not listed can have.
	Absent int64 `json:"absent"`
	Keys   []Key `json:"keys"`
}

// Key is one key of a Top: Count − Error ≤ true count ≤ Count.
type Key struct {
	Key   Name   `json:"key"`
	Tier  string `json:"tier,omitempty"`
	Count int64  `json:"count"`
	Error int64  `json:"error"`
	// Used is how much of the tightest limit was used after the key's last such decision,
	// in thousandths.
	Used int `json:"used"`
}

// LimitCounts are the denials of one limit.
type LimitCounts struct {
	Limit  string `json:"limit"`
	Denied int64  `json:"denied"`
	Shadow int64  `json:"shadow"`
}

// TierCounts are the checks of one tier.
type TierCounts struct {
	Tier string `json:"tier"`
	Counts
}

// topKeys is how many keys a report has of each view.
const topKeys = 50

// Rule reports what was counted of the rule within the range. It reports false if nothing
// was.
func (r *Recorder) Rule(name string, of time.Duration) (Rule, bool) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.rules[name]
	if f == nil {
		return Rule{}, false
	}
	f.turn(r.minute)
	n := within(of)
	out := Rule{
		Rule: name, Counts: sum(&f.series, r.minute, n), Minutes: make([]Minute, 0, minutes),
		Limits: []LimitCounts{}, Tiers: []TierCounts{}, Used: make([]int64, Distribution),
	}
	for m := r.minute - minutes + 1; m <= r.minute; m++ {
		out.Minutes = append(out.Minutes, Minute{m * 60, f.series[m%minutes].wide()})
	}
	parts, begin := f.steps(r.minute - n + 1)
	out.Begin = begin * 60
	for _, s := range parts {
		f.sumStep(&out, s)
	}
	out.Limits = slices.DeleteFunc(out.Limits, func(l LimitCounts) bool { return l.Denied+l.Shadow == 0 })
	out.Tiers = slices.DeleteFunc(out.Tiers, func(t TierCounts) bool { return t.Counts == (Counts{}) })
	out.sort()
	for v, top := range []*Top{&out.Use, &out.Denied, &out.Shadow, &out.Near} {
		*top = f.top(v, parts, topKeys)
	}
	return out, true
}

// sort puts the busiest limits and tiers first. They were added in the order in which the
// events happened to be read, which depends on the processor that each check ran on.
func (r *Rule) sort() {
	slices.SortFunc(r.Limits, func(a, b LimitCounts) int {
		return cmp.Or(cmp.Compare(b.Denied+b.Shadow, a.Denied+a.Shadow), strings.Compare(a.Limit, b.Limit))
	})
	slices.SortFunc(r.Tiers, func(a, b TierCounts) int {
		return cmp.Or(cmp.Compare(b.checks(), a.checks()), strings.Compare(a.Tier, b.Tier))
	})
}

// steps are those since the minute, the current one last, and the minute in which the
// first of them begins. The views of the current one are closed.
func (f *ruleFigures) steps(since int64) (list []*stepFigures, begin int64) {
	begin = f.begin
	for _, c := range f.closed {
		if c != nil && c.begin+stepMinutes > since {
			list = append(list, c)
			begin = min(begin, c.begin)
		}
	}
	now := f.step
	for v := range f.views {
		now.views[v] = f.views[v].close(f.views[v].most, f.views[v].most*1024)
	}
	slices.SortFunc(list, func(a, b *stepFigures) int { return cmp.Compare(a.begin, b.begin) })
	return append(list, &now), begin
}

func (f *ruleFigures) sumStep(to *Rule, s *stepFigures) {
	for i, n := range s.used {
		to.Used[i] += int64(n)
	}
	for i, l := range s.limits {
		sum := at(&to.Limits, i)
		sum.Limit = f.limitText(i)
		sum.Denied += int64(l[0])
		sum.Shadow += int64(l[1])
	}
	for i, t := range s.tiers {
		sum := at(&to.Tiers, i)
		sum.Tier = f.tierName(uint8(i))
		sum.Add(t.wide())
	}
}

// top sums up a view over steps. In a step that does not list it, a key has as much as is
// possible there, which is its error as well.
func (f *ruleFigures) top(v int, parts []*stepFigures, most int) Top {
	sums := make(map[uint64]*Key)
	var top Top
	for _, s := range parts {
		view := &s.views[v]
		top.Total += view.total
		top.Absent += view.absent
		for i := range view.keys {
			k := &view.keys[i]
			sum := sums[k.hash]
			if sum == nil {
				sum = &Key{Key: Name{k.key, k.cut}}
				sums[k.hash] = sum
			}
			if sum.Key.Cut && !k.cut {
				sum.Key = Name{k.key, false}
			}
			sum.Count += k.count - view.absent
			sum.Error += k.error - view.absent
			sum.Used, sum.Tier = int(k.used), f.tierName(k.tier)
		}
	}
	for _, k := range sums {
		k.Count += top.Absent
		k.Error += top.Absent
		top.Keys = append(top.Keys, *k)
	}
	top.sort(most)
	return top
}

// sort keeps the largest, at most so many, and says what the others may have.
func (t *Top) sort(most int) {
	slices.SortFunc(t.Keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key.Raw, b.Key.Raw))
	})
	if len(t.Keys) > most {
		t.Absent = max(t.Absent, t.Keys[most].Count)
		t.Keys = t.Keys[:most]
	}
	if t.Keys == nil {
		t.Keys = []Key{}
	}
}

// Heat are the busiest keys of one rule, minute by minute.
type Heat struct {
	Rule string `json:"rule"`
	// Begin is the first minute, in seconds since 1970.
	Begin int64 `json:"begin"`
	// Rows are the keys, the busiest first.
	Rows []HeatRow `json:"rows"`
}

// HeatRow is one key. Use and Denied have a number for each minute: units that were
// charged, and denials. A key that was not among the busiest of a minute has zero there.
type HeatRow struct {
	Key    Name    `json:"key"`
	Tier   string  `json:"tier,omitempty"`
	Use    []int64 `json:"use"`
	Denied []int64 `json:"denied"`
}

// Heat reports the keys of a rule that had most to do within the range, at most so many.
func (r *Recorder) Heat(name string, of time.Duration, most int) (Heat, bool) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.rules[name]
	if f == nil {
		return Heat{}, false
	}
	f.turn(r.minute)
	n := within(of)
	first := r.minute - n + 1
	out := Heat{Rule: name, Begin: first * 60, Rows: []HeatRow{}}
	parts, _ := f.steps(first)
	rows := make(map[uint64]*HeatRow)
	for _, s := range parts {
		for _, v := range []int{byUse, byDenied} {
			for i := range s.views[v].keys {
				if k := &s.views[v].keys[i]; rows[k.hash] == nil {
					rows[k.hash] = &HeatRow{Name{k.key, k.cut}, f.tierName(k.tier), make([]int64, n), make([]int64, n)}
				}
			}
		}
	}
	put := func(v int, minute int64, hash uint64, weight uint32) {
		if row := rows[hash]; row != nil && minute >= first {
			[]([]int64){row.Use, row.Denied}[v][minute-first] = int64(weight)
		}
	}
	for m := first; m < r.minute; m++ {
		if c := f.cells[m%minutes]; c != nil {
			for v := range c {
				for _, one := range c[v] {
					put(v, m, one.hash, one.weight)
				}
			}
		}
	}
	for v := range 2 {
		for i := range f.views[v].entries {
			put(v, r.minute, f.views[v].entries[i].hash, f.views[v].entries[i].minute)
		}
	}
	out.Rows = make([]HeatRow, 0, len(rows))
	for row := range maps.Values(rows) {
		out.Rows = append(out.Rows, *row)
	}
	out.sort(most)
	return out, true
}

func (h *Heat) sort(most int) {
	size := func(row *HeatRow) (n int64) {
		for i := range min(len(row.Use), len(row.Denied)) {
			n += row.Use[i] + row.Denied[i]
		}
		return n
	}
	slices.SortFunc(h.Rows, func(a, b HeatRow) int {
		return cmp.Or(cmp.Compare(size(&b), size(&a)), strings.Compare(a.Key.Raw, b.Key.Raw))
	})
	h.Rows = slices.DeleteFunc(h.Rows[:min(len(h.Rows), most)], func(r HeatRow) bool { return size(&r) == 0 })
}

// Memory is how many bytes all rules take, and what was left out.
func (r *Recorder) Memory() (bytes int64, left Left) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.memory.used), r.leftOut()
}
