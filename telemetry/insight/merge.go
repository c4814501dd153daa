package insight

import (
	"cmp"
	"fmt"
	"slices"
)

// Merge adds the overview of another node for the same range, and keeps at most the given number of
// rules. Minutes are matched by the nodes' own clocks.
func (o *Overview) Merge(with Overview, most int) {
	mergeMinutes(o.Minutes, with.Minutes)
	o.Total.Add(with.Total)
	mergeBy(&o.Doors, with.Doors, func(d *DoorCounts) string { return d.Door }, func(d, with *DoorCounts) { d.Add(with.Counts) })
	mergeBy(&o.Rules, with.Rules, func(r *RuleCounts) string { return r.Rule }, func(r, with *RuleCounts) {
		r.Add(with.Counts)
		r.Before.Add(with.Before)
		addTo(r.Spark, with.Spark)
	})
	mergeBy(&o.Lists, with.Lists, func(l *ListCounts) string { return fmt.Sprint(l.Denies, l.Entry) }, func(l, with *ListCounts) {
		l.Hits += with.Hits
		l.Before += with.Before
		addTo(l.Spark, with.Spark)
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
	r.Since, r.Begin = min(r.Since, with.Since), min(r.Begin, with.Begin)
	mergeMinutes(r.Minutes, with.Minutes)
	addTo(r.Used, with.Used)
	mergeBy(&r.Limits, with.Limits, func(l *LimitCounts) string { return l.Limit }, func(l, with *LimitCounts) {
		l.Denied += with.Denied
		l.Shadow += with.Shadow
	})
	mergeBy(&r.Tiers, with.Tiers, func(t *TierCounts) string { return t.Tier }, func(t, with *TierCounts) { t.Add(with.Counts) })
	r.sort()
	theirs := with.Tops()
	for v, top := range r.Tops() {
		top.merge(*theirs[v])
	}
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
		k.merge(o)
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
			h.Rows = append(h.Rows, HeatRow{Key: o.Key, Tier: o.Tier, Use: make([]int64, n), Denied: make([]int64, n)})
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
	places := make(map[int64]int, len(to))
	for i := range to {
		places[to[i].At] = i
	}
	for _, m := range with {
		if i, ok := places[m.At]; ok {
			to[i].Add(m.Counts)
			to[i].Unknown = to[i].Unknown && m.Unknown
		}
	}
}

func addTo(to, with []int64) {
	for i := range min(len(to), len(with)) {
		to[i] += with[i]
	}
}
