package insight

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

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
