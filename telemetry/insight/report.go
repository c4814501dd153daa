package insight

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Counts are numbers of checks, or of requests, by outcome.
type Counts struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// Shadow counts the checks that would have been denied if their limits were enforced. Of requests,
	// it counts those with such a check; they are also in Allowed or Denied.
	Shadow int64 `json:"shadow"`
	// Uncharged counts the checks that were admitted by their own limits but not charged, because
	// another check denied the request.
	Uncharged int64 `json:"uncharged,omitempty"`
}

// Add adds others to the counts.
func (c *Counts) Add(o Counts) {
	c.Allowed += o.Allowed
	c.Denied += o.Denied
	c.Shadow += o.Shadow
	c.Uncharged += o.Uncharged
}

// checks returns the number of checks that were counted.
func (c *Counts) checks() int64 { return c.Allowed + c.Denied + c.Shadow + c.Uncharged }

func (c counts) wide() Counts {
	return Counts{int64(c.allowed), int64(c.denied), int64(c.shadow), int64(c.uncharged)}
}

// Minute has the counts of one minute.
type Minute struct {
	// At is the start of the minute, in seconds since 1970.
	At int64 `json:"at"`
	Counts
}

// Overview has the counts of all rules.
type Overview struct {
	// Now is when the report was made, and Since when the recorder was. Both are in milliseconds since
	// 1970.
	Now   int64 `json:"now"`
	Since int64 `json:"since"`
	// Minutes are the requests of all doors. The last element is the current minute, which is not over
	// yet.
	Minutes []Minute `json:"minutes"`
	// Doors are the requests of each door within the range.
	Doors []DoorCounts `json:"doors"`
	// Rules are the rules with the most denials within the range, then those with the most denials in
	// shadow, then those with the most admitted checks. All is the number of rules that are known.
	Rules []RuleCounts `json:"rules"`
	All   int          `json:"all_rules"`
	Left  Left         `json:"left_out"`
	// Bytes is the memory of all rules, in bytes.
	Bytes int64 `json:"bytes"`
}

// DoorCounts has the requests of one door.
type DoorCounts struct {
	Door string `json:"door"`
	Counts
}

// RuleCounts has the checks of one rule within the range, and in the same length of time before it.
type RuleCounts struct {
	Rule string `json:"rule"`
	Counts
	Before Counts `json:"before"`
	// Spark has the denials, including those in shadow, for each minute of the last half hour.
	Spark []int64 `json:"spark"`
}

// sparkMinutes is the length of a [RuleCounts.Spark].
const sparkMinutes = 30

// within returns the number of minutes in a range, rounded up. It includes the current minute.
func within(of time.Duration) int64 {
	return max(1, min(minutes, int64((of+time.Minute-1)/time.Minute)))
}

func sum(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-n+1, 0); m <= last; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// before returns the sum of the n minutes before the last n minutes, as far as they are kept.
func before(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-2*n+1, last-minutes+1, 0); m <= last-n; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// Overview reports the counts within the range, with at most the given number of rules: those to
// look at first.
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

// Memory returns the memory of all rules in bytes, and what was left out.
func (r *Recorder) Memory() (bytes int64, left Left) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.memory.used), r.leftOut()
}

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

// Merge adds the overview of another node for the same range, and keeps at most the given number of
// rules. Minutes are matched by the nodes' own clocks.
func (o *Overview) Merge(with Overview, most int) {
	mergeMinutes(o.Minutes, with.Minutes)
	mergeBy(&o.Doors, with.Doors, func(d *DoorCounts) string { return d.Door }, func(d, with *DoorCounts) { d.Add(with.Counts) })
	mergeBy(&o.Rules, with.Rules, func(r *RuleCounts) string { return r.Rule }, func(r, with *RuleCounts) {
		r.Add(with.Counts)
		r.Before.Add(with.Before)
		addTo(r.Spark, with.Spark)
	})
	o.sort(most)
	o.All = max(o.All, with.All)
	o.Since = min(o.Since, with.Since)
	o.Left.Decisions += with.Left.Decisions
	o.Left.Events += with.Left.Events
	o.Left.Memory += with.Left.Memory
	o.Bytes += with.Bytes
}

// Merge adds the report of another node about the same rule and range.
func (r *Rule) Merge(with Rule) {
	r.Add(with.Counts)
	r.Begin = min(r.Begin, with.Begin)
	mergeMinutes(r.Minutes, with.Minutes)
	addTo(r.Used, with.Used)
	mergeBy(&r.Limits, with.Limits, func(l *LimitCounts) string { return l.Limit }, func(l, with *LimitCounts) {
		l.Denied += with.Denied
		l.Shadow += with.Shadow
	})
	mergeBy(&r.Tiers, with.Tiers, func(t *TierCounts) string { return t.Tier }, func(t, with *TierCounts) { t.Add(with.Counts) })
	r.sort()
	r.Use.merge(with.Use)
	r.Denied.merge(with.Denied)
	r.Shadow.merge(with.Shadow)
	r.Near.merge(with.Near)
}

// merge adds the list of another node. For a key that only one node lists, it adds the other node's
// Absent to both the count and the error.
func (t *Top) merge(with Top) {
	others := make(map[string]Key, len(with.Keys))
	for _, k := range with.Keys {
		others[k.Key.Raw] = k
	}
	for i := range t.Keys {
		k := &t.Keys[i]
		o, listed := others[k.Key.Raw]
		if !listed {
			o = Key{Count: with.Absent, Error: with.Absent}
		}
		delete(others, k.Key.Raw)
		k.Count += o.Count
		k.Error += o.Error
		k.Used = max(k.Used, o.Used)
	}
	for _, o := range with.Keys {
		if _, left := others[o.Key.Raw]; left {
			o.Count += t.Absent
			o.Error += t.Absent
			t.Keys = append(t.Keys, o)
		}
	}
	t.Total += with.Total
	t.Absent += with.Absent
	t.sort(topKeys)
}

// Merge adds the report of another node about the same rule, and keeps at most the given number of
// keys. Use and Denied of a row may differ in length; minutes that only one of them has are
// ignored.
func (h *Heat) Merge(with Heat, most int) {
	shift := int((with.Begin - h.Begin) / 60)
	for _, o := range with.Rows {
		i := slices.IndexFunc(h.Rows, func(own HeatRow) bool { return own.Key == o.Key })
		if i < 0 {
			n := len(o.Use)
			if len(h.Rows) > 0 {
				n = len(h.Rows[0].Use)
			}
			h.Rows = append(h.Rows, HeatRow{o.Key, o.Tier, make([]int64, n), make([]int64, n)})
			i = len(h.Rows) - 1
		}
		for m := range min(len(o.Use), len(o.Denied)) {
			if to := m + shift; to >= 0 && to < min(len(h.Rows[i].Use), len(h.Rows[i].Denied)) {
				h.Rows[i].Use[to] += o.Use[m]
				h.Rows[i].Denied[to] += o.Denied[m]
			}
		}
	}
	h.sort(most)
}

// MergeDenials returns the denials of several nodes in the order of their times.
func MergeDenials(of ...[]Denial) []Denial {
	all := slices.Concat(of...)
	slices.SortStableFunc(all, func(a, b Denial) int { return cmp.Compare(a.At, b.At) })
	return all
}

// mergeBy adds each element of a list to the one of the same name, or appends it.
func mergeBy[T any](to *[]T, with []T, name func(*T) string, add func(to, with *T)) {
	places := make(map[string]int, len(*to))
	for i := range *to {
		places[name(&(*to)[i])] = i
	}
	for i := range with {
		if at, ok := places[name(&with[i])]; ok {
			add(&(*to)[at], &with[i])
		} else {
			*to = append(*to, with[i])
		}
	}
}

// mergeMinutes adds the counts of the minutes that both lists have.
func mergeMinutes(to, with []Minute) {
	if len(to) == 0 {
		return
	}
	for _, m := range with {
		if i := (m.At - to[0].At) / 60; i >= 0 && i < int64(len(to)) && to[i].At == m.At {
			to[i].Add(m.Counts)
		}
	}
}

func addTo(to, with []int64) {
	for i := range min(len(to), len(with)) {
		to[i] += with[i]
	}
}
