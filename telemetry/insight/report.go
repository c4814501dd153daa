package insight

import (
	"cmp"
	"hash/maphash"
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
	// Failed counts those without a decision, because the store did not answer. They are in none of
	// the others.
	Failed int64 `json:"failed,omitempty"`
	// Open counts those of Allowed that were let in uncounted, and Local those of Allowed, Denied and
	// so on that a server decided by its share of the limit: the store did not answer.
	Open  int64 `json:"open,omitempty"`
	Local int64 `json:"local,omitempty"`
	// Listed counts the requests that the deny list turned away, which are not in Denied, and Passed
	// those of Allowed that the allow list let in. They are zero for checks.
	Listed int64 `json:"listed,omitempty"`
	Passed int64 `json:"passed,omitempty"`
}

// Add adds others to the counts.
func (c *Counts) Add(o Counts) {
	c.Allowed += o.Allowed
	c.Denied += o.Denied
	c.Shadow += o.Shadow
	c.Uncharged += o.Uncharged
	c.Failed += o.Failed
	c.Open += o.Open
	c.Local += o.Local
	c.Listed += o.Listed
	c.Passed += o.Passed
}

// checks returns the number of checks that were counted.
func (c *Counts) checks() int64 { return c.Allowed + c.Denied + c.Shadow + c.Uncharged + c.Failed }

func (c counts) wide() Counts {
	return Counts{
		int64(c.allowed), int64(c.denied), int64(c.shadow), int64(c.uncharged),
		int64(c.failed), int64(c.open), int64(c.local), int64(c.listed), int64(c.passed),
	}
}

// Minute has the counts of one minute.
type Minute struct {
	// At is the start of the minute, in seconds since 1970.
	At int64 `json:"at"`
	Counts
	// Unknown says that nothing was there to count.
	Unknown bool `json:"unknown,omitempty"`
}

// Past is what was counted within a range that may reach further back than a [Recorder]. Its
// minutes may be longer: they are as long as the time from one to the next.
type Past struct {
	Minutes []Minute
	// Rules have no Spark.
	Rules []RuleCounts
}

// sum adds up the minutes, and returns when the first that is known begins, in seconds since 1970.
func (p *Past) sum() (all Counts, since int64) {
	for _, m := range p.Minutes {
		all.Add(m.Counts)
		if since == 0 && !m.Unknown {
			since = m.At
		}
	}
	return all, since
}

// Extend replaces the minutes and sums by those of the past, and keeps at most the given number of
// rules.
func (o *Overview) Extend(past Past, most int) {
	sparks := make(map[string][]int64, len(o.Rules))
	for i := range o.Rules {
		sparks[o.Rules[i].Rule] = o.Rules[i].Spark
	}
	for i := range past.Rules {
		past.Rules[i].Spark = sparks[past.Rules[i].Rule]
		if past.Rules[i].Spark == nil {
			past.Rules[i].Spark = make([]int64, sparkMinutes)
		}
	}
	all, since := past.sum()
	o.Minutes, o.Rules, o.Total, o.All = past.Minutes, past.Rules, all, max(o.All, len(past.Rules))
	if since > 0 {
		o.Since = min(o.Since, since*1000)
	}
	o.sort(most)
}

// Extend replaces the minutes and the sum by those of the past.
func (r *Rule) Extend(past Past) {
	all, since := past.sum()
	r.Minutes, r.Counts = past.Minutes, all
	if since > 0 {
		r.Since = min(r.Since, since*1000)
	}
}

// Span has the counts of a length of time, for those who keep them longer than a [Recorder].
type Span struct {
	// At is its start, in seconds since 1970, and Of its length in seconds.
	At    int64             `json:"at"`
	Of    int64             `json:"of"`
	All   Counts            `json:"all"`             // requests
	Rules map[string]Counts `json:"rules,omitempty"` // checks, by rule
}

// Add adds another span's counts.
func (s *Span) Add(o Span) {
	s.All.Add(o.All)
	if s.Rules == nil {
		s.Rules = make(map[string]Counts, len(o.Rules))
	}
	for name, c := range o.Rules {
		c.Add(s.Rules[name])
		s.Rules[name] = c
	}
}

// Bound keeps at most the given number of rules, those with the most checks, and adds up all others
// under the name.
func (s *Span) Bound(most int, others string) {
	if len(s.Rules) <= most {
		return
	}
	names := slices.SortedFunc(maps.Keys(s.Rules), func(a, b string) int {
		x, y := s.Rules[a], s.Rules[b]
		return cmp.Or(cmp.Compare(y.checks(), x.checks()), strings.Compare(a, b))
	})
	for _, name := range names[most-1:] {
		if name == others {
			continue
		}
		c := s.Rules[others]
		c.Add(s.Rules[name])
		delete(s.Rules, name)
		s.Rules[others] = c
	}
}

// Spans returns the minutes that are over and still kept, from the one on that begins at the given time,
// in seconds since 1970; with running also the one that is not over.
func (r *Recorder) Spans(from int64, running bool) []Span {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.minute
	if !running {
		last--
	}
	var list []Span
	for m := max((from+59)/60, minuteOf(r.since), r.minute-minutes+1); m <= last; m++ {
		s := Span{At: m * 60, Of: 60, Rules: make(map[string]Counts)}
		for i := range r.doors {
			s.All.Add(r.doors[i].series[m%minutes].wide())
		}
		for name, f := range r.rules {
			if c := f.series[m%minutes]; c != (counts{}) {
				s.Rules[name] = c.wide()
			}
		}
		list = append(list, s)
	}
	return list
}

// Checks returns the checks of each rule that is followed, since the rule is.
func (r *Recorder) Checks() map[string]Counts {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]Counts, len(r.rules))
	for name, f := range r.rules {
		c := f.past
		c.Add(f.series[f.turned%minutes].wide())
		all[name] = c
	}
	return all
}

// Overview has the counts of all rules.
type Overview struct {
	// Now is when the report was made, and Since when the recorder was. Both are in milliseconds since
	// 1970.
	Now   int64 `json:"now"`
	Since int64 `json:"since"`
	// Total are the requests of all doors within the range.
	Total Counts `json:"total"`
	// Minutes are the requests of all doors. The last element is the current minute, which is not over
	// yet.
	Minutes []Minute `json:"minutes"`
	// Doors are the requests of each door within the range.
	Doors []DoorCounts `json:"doors"`
	// Lists are the entries of the allow and deny lists that answered requests, most hits first.
	Lists []ListCounts `json:"lists"`
	// Rules are the rules with the most denials and failures within the range, then those with the most denials in
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

// ListCounts has the requests that an entry of a list answered, within the range and in the same
// length of time before it.
type ListCounts struct {
	Entry string `json:"entry"`
	// Denies says that the entry is one of the deny list.
	Denies bool    `json:"denies"`
	Hits   int64   `json:"hits"`
	Before int64   `json:"before"`
	Spark  []int64 `json:"spark"`
}

// RuleCounts has the checks of one rule within the range, and in the same length of time before it.
type RuleCounts struct {
	Rule string `json:"rule"`
	Counts
	Before Counts `json:"before"`
	// Spark has the denials, including those in shadow, and the failures, for each minute of the last
	// half hour.
	Spark []int64 `json:"spark"`
}

// sparkMinutes is the length of a [RuleCounts.Spark].
const sparkMinutes = 30

// Range is the time that a report is about. It has whole minutes.
type Range struct {
	// Of is its length, of which the minutes that are kept count.
	Of time.Duration
	// Until is its end. The zero time is now, with the current minute.
	Until time.Time
}

// Last returns the range of that length until now.
func Last(of time.Duration) Range { return Range{Of: of} }

// span returns the number of minutes of the range that are kept in the given minute, and the last of
// them. The number is zero if the range ends before all that is kept.
func (of Range) span(now int64) (n, last int64) {
	last = now
	if !of.Until.IsZero() {
		last = min(now, minuteOf(of.Until.Add(-time.Second)))
	}
	n = min(max(1, int64((of.Of+time.Minute-1)/time.Minute)), last-now+minutes)
	return max(0, n), max(last, now-minutes)
}

// sum returns the sum of the n minutes that end with the given one.
func sum(series *[minutes]counts, last, n int64) (c Counts) {
	for m := last - n + 1; m <= last; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// sums returns the sum of the n minutes that end with the given one, and of the n minutes before
// them, as far as they are kept.
func (r *Recorder) sums(series *[minutes]counts, last, n int64) (in, before Counts) {
	kept := max(0, min(n, last-n-(r.minute-minutes)))
	return sum(series, last, n), sum(series, last-n, kept)
}

// Overview reports the counts within the range, with at most the given number of rules: those to
// look at first.
func (r *Recorder) Overview(of Range, most int) Overview {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	n, last := of.span(r.minute)
	o := Overview{
		Now: r.options.Now().UnixMilli(), Since: r.since.UnixMilli(), All: len(r.rules), Left: r.leftOut(),
		Bytes: int64(r.memory.used), Minutes: make([]Minute, 0, minutes), Doors: []DoorCounts{}, Rules: []RuleCounts{}, Lists: []ListCounts{},
	}
	for m := r.minute - minutes + 1; m <= r.minute; m++ {
		at := Minute{At: m * 60, Unknown: m < minuteOf(r.since)}
		for i := range r.doors {
			at.Add(r.doors[i].series[m%minutes].wide())
		}
		o.Minutes = append(o.Minutes, at)
	}
	for i := range r.doors {
		if c, _ := r.sums(&r.doors[i].series, last, n); c != (Counts{}) {
			o.Doors = append(o.Doors, DoorCounts{r.doors[i].name, c})
			o.Total.Add(c)
		}
	}
	for _, f := range r.rules {
		c := RuleCounts{Rule: f.name}
		c.Counts, c.Before = r.sums(&f.series, last, n)
		if c.Counts != (Counts{}) || c.Before != (Counts{}) {
			o.Rules = append(o.Rules, c)
		}
	}
	for entry, hits := range r.lists {
		l := ListCounts{Entry: entry.name, Denies: entry.denies}
		for m := max(last-2*n+1, r.minute-minutes+1); m <= last; m++ {
			if m > last-n {
				l.Hits += int64(hits[m%minutes])
			} else {
				l.Before += int64(hits[m%minutes])
			}
		}
		for m := r.minute - sparkMinutes + 1; m <= r.minute; m++ {
			l.Spark = append(l.Spark, int64(hits[m%minutes]))
		}
		if l.Hits+l.Before > 0 {
			o.Lists = append(o.Lists, l)
		}
	}
	o.sort(most)
	for i := range o.Rules {
		f, c := r.rules[o.Rules[i].Rule], &o.Rules[i]
		for m := r.minute - sparkMinutes + 1; m <= r.minute; m++ {
			s := f.series[m%minutes]
			c.Spark = append(c.Spark, int64(s.denied)+int64(s.shadow)+int64(s.failed))
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
			cmp.Compare(b.Denied+b.Failed, a.Denied+a.Failed), cmp.Compare(b.Shadow, a.Shadow), cmp.Compare(b.Allowed, a.Allowed), strings.Compare(a.Rule, b.Rule))
	})
	o.Rules = o.Rules[:min(len(o.Rules), most)]
	slices.SortFunc(o.Lists, func(a, b ListCounts) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), strings.Compare(a.Entry, b.Entry))
	})
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
	// Since is when the recorder was made, in milliseconds since 1970.
	Since int64 `json:"since"`
	// Begin is the start of the range of the fields from Use on, in seconds since 1970: that of a step,
	// or of the recorder.
	Begin int64 `json:"begin"`
	// Minutes are the rule's checks by minute, the current minute last.
	Minutes []Minute `json:"minutes"`
	// Use, Denied, Shadow and Near list the keys with the most units, the most denials, the most
	// denials in shadow, and the most decisions that left less than a fifth of a limit. Away lists
	// those with the most requests that the store did not decide: they failed, were let in, or were
	// decided by a server's share.
	Use    Top `json:"use"`
	Denied Top `json:"denied_keys"`
	Shadow Top `json:"shadow_keys"`
	Near   Top `json:"near"`
	Away   Top `json:"away_keys"`
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
	Key  Name   `json:"key"`
	Tier string `json:"tier,omitempty"`
	// Known is what is known of the client from elsewhere. A Recorder leaves it empty.
	Known string `json:"known,omitempty"`
	Count int64  `json:"count"`
	Error int64  `json:"error"`
	// Used is the part of the tightest limit that was used after the key's last decision of this kind,
	// in thousandths.
	Used int `json:"used"`
	// Since and Last are the first and the last minute in which the key was counted, in seconds since
	// 1970. They may be outside of the range of the report: Since begins the row of steps, each of
	// which has the key, that ends with the last step that has it.
	Since int64 `json:"since"`
	Last  int64 `json:"last"`
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
func (r *Recorder) Rule(name string, of Range) (Rule, bool) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.rules[name]
	if f == nil {
		return Rule{}, false
	}
	f.turn(r.minute)
	n, last := of.span(r.minute)
	out := Rule{
		Rule: name, Since: r.since.UnixMilli(), Minutes: make([]Minute, 0, minutes),
		Limits: []LimitCounts{}, Tiers: []TierCounts{}, Used: make([]int64, Distribution),
	}
	out.Counts, _ = r.sums(&f.series, last, n)
	for m := r.minute - minutes + 1; m <= r.minute; m++ {
		out.Minutes = append(out.Minutes, Minute{m * 60, f.series[m%minutes].wide(), m < minuteOf(r.since)})
	}
	all := f.steps()
	parts, begin := between(all, last-n+1, last)
	out.Begin = max(begin*60, r.since.Unix())
	for _, s := range parts {
		f.sumStep(&out, s)
	}
	out.Limits = slices.DeleteFunc(out.Limits, func(l LimitCounts) bool { return l.Denied+l.Shadow == 0 })
	out.Tiers = slices.DeleteFunc(out.Tiers, func(t TierCounts) bool { return t.Counts == (Counts{}) })
	out.sort()
	for v, top := range out.Tops() {
		*top = f.top(v, parts, all, topKeys)
	}
	return out, true
}

// Tops returns all lists of keys.
func (r *Rule) Tops() []*Top { return []*Top{&r.Use, &r.Denied, &r.Shadow, &r.Near, &r.Away} }

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

// steps returns all steps that are kept, the current one last and with its views filled in.
func (f *ruleFigures) steps() (list []*stepFigures) {
	for _, c := range f.closed {
		if c != nil {
			list = append(list, c)
		}
	}
	now := f.step
	for v := range f.views {
		now.views[v] = f.views[v].close(f.views[v].most, f.views[v].most*1024)
	}
	slices.SortFunc(list, func(a, b *stepFigures) int { return cmp.Compare(a.begin, b.begin) })
	return append(list, &now)
}

// between returns the steps that have a minute from first to last, and the minute in which they begin.
func between(steps []*stepFigures, first, last int64) (in []*stepFigures, begin int64) {
	for _, s := range steps {
		if s.begin+stepMinutes > first && s.begin <= last {
			in = append(in, s)
		}
	}
	if len(in) == 0 {
		return nil, first
	}
	return in, in[0].begin
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
// possible count there to both the count and the error of the key. It looks for its minutes in all.
func (f *ruleFigures) top(v int, parts, all []*stepFigures, most int) Top {
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
	for hash, k := range sums {
		k.Since, k.Last = minutesOf(v, hash, all)
		k.Count += top.Absent
		k.Error += top.Absent
		top.Keys = append(top.Keys, *k)
	}
	top.sort(most)
	return top
}

// minutesOf returns the first and the last minute of a key in the last steps that have it in a row.
func minutesOf(v int, hash uint64, all []*stepFigures) (since, last int64) {
	next := int64(0) // the step after this one
	for _, s := range slices.Backward(all) {
		k := s.key(v, hash)
		switch {
		case last == 0 && k == nil:
			continue
		case last == 0:
			last = 60 * (s.begin + int64(k.last))
		case k == nil || s.begin+stepMinutes < next:
			return since, last
		}
		since, next = 60*(s.begin+int64(k.first)), s.begin
	}
	return since, last
}

// key returns what a view of the step has of a key, or nil.
func (s *stepFigures) key(v int, hash uint64) *closedKey {
	keys := s.views[v].keys
	if i := slices.IndexFunc(keys, func(k closedKey) bool { return k.hash == hash }); i >= 0 {
		return &keys[i]
	}
	return nil
}

// KeyCounts has the counts of one key under one rule, in all the time that is kept; see [Key]. A count
// is nil if the key is not among those that are followed.
type KeyCounts struct {
	Rule   string `json:"rule"`
	Key    Name   `json:"key"`
	Tier   string `json:"tier,omitempty"`
	Use    *Key   `json:"use,omitempty"`
	Denied *Key   `json:"denied,omitempty"`
	Shadow *Key   `json:"shadow,omitempty"`
	Away   *Key   `json:"away,omitempty"`
	// Begin is the first minute of Asked, in seconds since 1970.
	Begin int64 `json:"begin"`
	// Asked has the units that the key asked for in each minute, admitted and denied, the current one
	// last. In a minute in which it was not among the busiest keys, it is the most that it can have
	// asked for.
	Asked []int64 `json:"asked"`
}

// counts returns the counts of a view, or nil for one that is not shown.
func (c *KeyCounts) counts() []**Key { return []**Key{&c.Use, &c.Denied, &c.Shadow, nil, &c.Away} }

// Known reports whether anything was counted.
func (c *KeyCounts) Known() bool {
	return c.Use != nil || c.Denied != nil || c.Shadow != nil || c.Away != nil
}

// Key reports the counts of one key under a rule.
func (r *Recorder) Key(rule, key string) KeyCounts {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.rules[rule]
	if f == nil {
		return r.noCounts(rule, Name{Raw: key})
	}
	f.turn(r.minute)
	return r.key(f, maphash.String(r.seed, key), Name{Raw: key}, f.steps())
}

func (r *Recorder) noCounts(rule string, key Name) KeyCounts {
	return KeyCounts{Rule: rule, Key: key, Begin: (r.minute - minutes + 1) * 60, Asked: make([]int64, minutes)}
}

func (r *Recorder) key(f *ruleFigures, hash uint64, key Name, all []*stepFigures) KeyCounts {
	c := r.noCounts(f.name, key)
	for v, to := range c.counts() {
		if to == nil {
			continue
		}
		var sum Key
		for _, s := range all {
			view := &s.views[v]
			if k := s.key(v, hash); k != nil {
				sum.Count += k.count
				sum.Error += k.error
				sum.Used, sum.Tier = int(k.used), f.tierName(k.tier)
			} else {
				sum.Count += view.absent
				sum.Error += view.absent
			}
		}
		sum.Key = key
		if sum.Since, sum.Last = minutesOf(v, hash, all); sum.Last > 0 {
			*to, c.Tier = &sum, cmp.Or(sum.Tier, c.Tier)
		}
	}
	for i := range c.Asked {
		m := r.minute - minutes + 1 + int64(i)
		for _, v := range []int{byUse, byDenied} {
			c.Asked[i] += f.asked(v, hash, m, r.minute)
		}
	}
	return c
}

// asked returns how many units a key asked for in a minute, at most.
func (f *ruleFigures) asked(v int, hash uint64, minute, now int64) int64 {
	if minute == now {
		for i := range f.views[v].entries {
			if e := &f.views[v].entries[i]; e.hash == hash {
				return e.minute
			}
		}
		return 0
	}
	made := f.cells[minute%minutes]
	if made == nil {
		return 0
	}
	for _, c := range made[v] {
		if c.hash == hash {
			return c.weight
		}
	}
	if n := len(made[v]); n == bounds[v].cells {
		return made[v][n-1].weight
	}
	return 0
}

// Merge adds the counts of another node for the same key and rule.
func (c *KeyCounts) Merge(with KeyCounts) {
	theirs := with.counts()
	for v, to := range c.counts() {
		switch {
		case to == nil || *theirs[v] == nil:
		case *to == nil:
			*to = *theirs[v]
		default:
			(*to).merge(**theirs[v])
		}
	}
	c.Tier = cmp.Or(c.Tier, with.Tier)
	shift := (with.Begin - c.Begin) / 60
	for i, n := range with.Asked {
		if at := int64(i) + shift; at >= 0 && at < int64(len(c.Asked)) {
			c.Asked[at] += n
		}
	}
}

// merge adds the count of another node for the same key.
func (k *Key) merge(o Key) {
	k.Count += o.Count
	k.Error += o.Error
	k.Used, k.Last, k.Tier = max(k.Used, o.Used), max(k.Last, o.Last), cmp.Or(k.Tier, o.Tier)
	if o.Since > 0 && (k.Since == 0 || o.Since < k.Since) {
		k.Since = o.Since
	}
}

// Find returns the keys of any rule that fit, at most the given number.
func (r *Recorder) Find(fits func(rule, key string) bool, most int) (list []KeyCounts) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.rules)) {
		f := r.rules[name]
		f.turn(r.minute)
		all, seen := f.steps(), make(map[uint64]bool)
		for _, s := range slices.Backward(all) {
			for v := range s.views {
				for _, k := range s.views[v].keys {
					if len(list) == most {
						return list
					}
					if !seen[k.hash] && fits(name, k.key) {
						list = append(list, r.key(f, k.hash, Name{k.key, k.cut}, all))
					}
					seen[k.hash] = true
				}
			}
		}
	}
	return list
}

// RuleTop has the keys of one rule that are denied most, and those with most requests that the store
// did not decide.
type RuleTop struct {
	Rule   string `json:"rule"`
	Denied Top    `json:"denied_keys"`
	Away   Top    `json:"away_keys"`
}

// Tops reports the keys of the rules with the most denials and failures within the range, at most so
// many rules.
func (r *Recorder) Tops(of Range, most int) []RuleTop {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	type busy struct {
		f *ruleFigures
		n int64
	}
	var list []busy
	minutes, last := of.span(r.minute)
	for _, f := range r.rules {
		c, _ := r.sums(&f.series, last, minutes)
		if n := c.Denied + c.Failed + c.Open + c.Local; n > 0 {
			list = append(list, busy{f, n})
		}
	}
	slices.SortFunc(list, func(a, b busy) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.f.name, b.f.name)) })
	out := []RuleTop{}
	for _, one := range list[:min(len(list), most)] {
		one.f.turn(r.minute)
		all := one.f.steps()
		parts, _ := between(all, last-minutes+1, last)
		out = append(out, RuleTop{one.f.name, one.f.top(byDenied, parts, all, topKeys), one.f.top(byAway, parts, all, topKeys)})
	}
	return out
}

// MergeTops adds the reports of another node.
func MergeTops(to []RuleTop, with []RuleTop) []RuleTop {
	mergeBy(&to, with, func(t *RuleTop) string { return t.Rule }, func(t, with *RuleTop) {
		t.Denied.merge(with.Denied)
		t.Away.merge(with.Away)
	})
	return to
}

// Uniform reports whether no key stands out: each listed one may have a smaller count than one that is
// not listed. Then the list shows some keys, and not those with the largest counts.
func (t *Top) Uniform() bool {
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
// and those that were denied. They are zero in a minute in which the key was not among the busiest.
type HeatRow struct {
	Key  Name   `json:"key"`
	Tier string `json:"tier,omitempty"`
	// Known is what is known of the client from elsewhere. A Recorder leaves it empty.
	Known  string  `json:"known,omitempty"`
	Use    []int64 `json:"use"`
	Denied []int64 `json:"denied"`
}

// Heat reports the busiest keys of a rule within the range, at most the given number. It reports
// false if the rule is not known.
func (r *Recorder) Heat(name string, of Range, most int) (Heat, bool) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.rules[name]
	if f == nil {
		return Heat{}, false
	}
	f.turn(r.minute)
	n, last := of.span(r.minute)
	first := last - n + 1
	out := Heat{Rule: name, Begin: first * 60, Rows: []HeatRow{}}
	parts, _ := between(f.steps(), first, last)
	rows := make(map[uint64]*HeatRow)
	for _, s := range parts {
		for _, v := range []int{byUse, byDenied} {
			for i := range s.views[v].keys {
				if k := &s.views[v].keys[i]; rows[k.hash] == nil {
					rows[k.hash] = &HeatRow{Key: Name{k.key, k.cut}, Tier: f.tierName(k.tier), Use: make([]int64, n), Denied: make([]int64, n)}
				}
			}
		}
	}
	put := func(v int, minute int64, hash uint64, weight int64) {
		if row := rows[hash]; row != nil && minute >= first {
			[]([]int64){row.Use, row.Denied}[v][minute-first] = weight
		}
	}
	for m := first; m <= min(last, r.minute-1); m++ {
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
			if last < r.minute {
				break
			}
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
