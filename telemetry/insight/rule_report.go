package insight

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Rule has the counts of one rule.
type Rule struct {
	Rule string `json:"rule"`
	// Counts are the rule's checks within the range.
	Counts
	// Begin is the start of the range of the fields from Use on, in seconds since 1970. It is the
	// start of a step.
	Begin int64 `json:"begin"`
	// Minutes are the rule's checks by minute, the current minute last.
	Minutes []Minute `json:"minutes"`
	// Use, Denied, Shadow and Near list the keys with the most units, the most denials, the most
	// denials in shadow, and the most decisions that left less than a fifth of a limit.
	Use    Top `json:"use"`
	Denied Top `json:"denied_keys"`
	Shadow Top `json:"shadow_keys"`
	Near   Top `json:"near"`
	// Limits are the limits that denied, or would have denied in shadow.
	Limits []LimitCounts `json:"limits"`
	// Tiers are the checks by the tiers of the rule's tariff.
	Tiers []TierCounts `json:"tiers"`
	// Used counts admitted checks by the part of their tightest limit that was used afterwards, in
	// classes of five percent.
	Used []int64 `json:"used"`
}

// Top lists the keys with the largest counts.
type Top struct {
	// Total is the sum over all keys, listed or not.
	Total int64 `json:"total"`
	// Absent is the largest possible count of a key that is not listed.
	Absent int64 `json:"absent"`
	Keys   []Key `json:"keys"`
}

// Key is one key of a [Top]: Count − Error ≤ true count ≤ Count.
type Key struct {
	Key   Name   `json:"key"`
	Tier  string `json:"tier,omitempty"`
	Count int64  `json:"count"`
	Error int64  `json:"error"`
	// Used is the part of the tightest limit that was used after the key's last decision of this kind,
	// in thousandths.
	Used int `json:"used"`
}

// LimitCounts has the denials of one limit.
type LimitCounts struct {
	Limit  string `json:"limit"`
	Denied int64  `json:"denied"`
	Shadow int64  `json:"shadow"`
}

// TierCounts has the checks of one tier.
type TierCounts struct {
	Tier string `json:"tier"`
	Counts
}

// topKeys is the maximum number of keys that a report lists for each view.
const topKeys = 50

// Rule reports the counts of the rule within the range. It reports false if the rule is not known.
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

// sort orders limits and tiers by their counts, the largest first. Their order in the figures is
// arbitrary, because it depends on which processor each check ran on.
func (r *Rule) sort() {
	slices.SortFunc(r.Limits, func(a, b LimitCounts) int {
		return cmp.Or(cmp.Compare(b.Denied+b.Shadow, a.Denied+a.Shadow), strings.Compare(a.Limit, b.Limit))
	})
	slices.SortFunc(r.Tiers, func(a, b TierCounts) int {
		return cmp.Or(cmp.Compare(b.checks(), a.checks()), strings.Compare(a.Tier, b.Tier))
	})
}

// steps returns the steps since the given minute, the current one last and with its views filled
// in. begin is the minute in which the first of them begins.
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

// top adds up a view over several steps. For a step that does not list a key, it adds the largest
// possible count there to both the count and the error of the key.
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

// Alike reports whether no key stands out: each listed one may have a smaller count than one that is
// not listed. Then the list shows some keys, and not those with the largest counts.
func (t *Top) Alike() bool {
	return len(t.Keys) > 0 && !slices.ContainsFunc(t.Keys, func(k Key) bool { return k.Count-k.Error > t.Absent })
}

// sort keeps at most the given number of keys, the largest, and raises Absent to cover those that
// it drops.
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

// Heat has the busiest keys of one rule, minute by minute.
type Heat struct {
	Rule string `json:"rule"`
	// Begin is the first minute, in seconds since 1970.
	Begin int64 `json:"begin"`
	// Rows are the keys, the busiest first.
	Rows []HeatRow `json:"rows"`
}

// HeatRow is one key. Use and Denied have one number for each minute: the units that were charged,
// and the denials. They are zero in a minute in which the key was not among the busiest.
type HeatRow struct {
	Key    Name    `json:"key"`
	Tier   string  `json:"tier,omitempty"`
	Use    []int64 `json:"use"`
	Denied []int64 `json:"denied"`
}

// Heat reports the busiest keys of a rule within the range, at most the given number. It reports
// false if the rule is not known.
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
