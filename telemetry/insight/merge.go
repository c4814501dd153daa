package insight

import (
	"cmp"
	"slices"
)

// Merge adds the overview of another node for the same range, and keeps at most the given number of
// rules. Minutes are matched by the nodes' own clocks.
func (o *Overview) Merge(with Overview, most int) {
	mergeMinutes(o.Minutes, with.Minutes)
	for _, d := range with.Doors {
		i := slices.IndexFunc(o.Doors, func(own DoorCounts) bool { return own.Door == d.Door })
		if i < 0 {
			o.Doors = append(o.Doors, d)
			continue
		}
		o.Doors[i].Add(d.Counts)
	}
	places := make(map[string]int, len(o.Rules))
	for i := range o.Rules {
		places[o.Rules[i].Rule] = i
	}
	for _, r := range with.Rules {
		i, ok := places[r.Rule]
		if !ok {
			o.Rules = append(o.Rules, r)
			continue
		}
		o.Rules[i].Add(r.Counts)
		o.Rules[i].Before.Add(r.Before)
		addTo(o.Rules[i].Spark, r.Spark)
	}
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
	for _, l := range with.Limits {
		i := slices.IndexFunc(r.Limits, func(own LimitCounts) bool { return own.Limit == l.Limit })
		if i < 0 {
			r.Limits = append(r.Limits, l)
			continue
		}
		r.Limits[i].Denied += l.Denied
		r.Limits[i].Shadow += l.Shadow
	}
	for _, t := range with.Tiers {
		i := slices.IndexFunc(r.Tiers, func(own TierCounts) bool { return own.Tier == t.Tier })
		if i < 0 {
			r.Tiers = append(r.Tiers, t)
			continue
		}
		r.Tiers[i].Add(t.Counts)
	}
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
