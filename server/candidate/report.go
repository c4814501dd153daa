package candidate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/server/decide"
)

// Report is what a trial has found, as GET /v1/candidate answers it. It is of one
// server; Merge adds those of others.
type Report struct {
	// Live is the policy in force.
	Live Version `json:"live"`
	// Candidate is the one that is tried; nil while its file was never without
	// mistakes.
	Candidate *Version `json:"candidate"`
	// Failed is why the last reload of the candidate changed nothing.
	Failed *Failed `json:"failed,omitempty"`
	// Since is when the figures begin: with the server, or the last change of
	// either policy.
	Since time.Time `json:"since"`
	// CountingSince is when this server has begun to count for the candidate.
	// What was used before, the candidate does not know of.
	CountingSince time.Time `json:"counting_since"`
	// Counters says where the candidate's counters are.
	Counters string `json:"counters"`
	// Crowded is how many checks were decided on counters that several keys
	// share, for want of memory. They are stricter than the candidate is.
	Crowded uint64 `json:"crowded"`

	// Compared is the sum of the outcomes that follow it.
	Compared      int64 `json:"compared"`
	BothAdmitted  int64 `json:"both_admitted"`
	BothDenied    int64 `json:"both_denied"`
	NewlyDenied   int64 `json:"newly_denied"`
	NewlyAdmitted int64 `json:"newly_admitted"`
	// Undecidable are requests that the candidate has no answer for.
	Undecidable int64 `json:"undecidable"`
	// WhyUndecidable is of the last of them.
	WhyUndecidable string `json:"why_undecidable,omitempty"`
	// NotCompared are requests besides.
	NotCompared NotCompared `json:"not_compared"`

	// Rules has who decides the differences: of what is newly denied the
	// candidate's rules, of what is newly admitted those in force.
	Rules []Split `json:"rules"`
	// OtherRules is how many differences are not in Rules, which is bounded.
	OtherRules int64 `json:"other_rules,omitempty"`

	// InProgress are the rules whose bounds on what is in progress differ. No request was
	// compared by them.
	InProgress []Rebound `json:"in_progress,omitempty"`

	// KeysHidden says that the keys that follow were left out.
	KeysHidden       bool  `json:"keys_hidden,omitempty"`
	TopNewlyDenied   []Key `json:"top_newly_denied,omitempty"`
	TopNewlyAdmitted []Key `json:"top_newly_admitted,omitempty"`
}

// Version says which policy it is.
type Version struct {
	Version int64  `json:"version"`
	Hash    string `json:"hash"`
	Rules   int    `json:"rules"`
}

// Failed is a reload that did not work.
type Failed struct {
	At     time.Time `json:"at"`
	Detail string    `json:"detail"`
	// Mistakes are those in the file, as file:line:column: what is wrong. They are
	// left out with the keys.
	Mistakes []string `json:"mistakes,omitempty"`
}

// NotCompared counts requests that were not compared, by reason.
type NotCompared struct {
	// Dropped: the queue was full.
	Dropped int64 `json:"dropped"`
	// Undecided: the service itself had no decision.
	Undecided int64 `json:"undecided"`
	// Unanswered: the candidate's store did not answer.
	Unanswered int64 `json:"unanswered"`
}

// Split is the part of the differences that one rule or entry of a list decides.
type Split struct {
	Denier
	NewlyDenied   int64 `json:"newly_denied"`
	NewlyAdmitted int64 `json:"newly_admitted"`
	Undecidable   int64 `json:"undecidable,omitempty"`
	// Tiers are the parts by the value of the rule's tariff.
	Tiers []Tier `json:"tiers,omitempty"`
}

// Tier is the part of the differences of one value of a tariff; "*" is all others.
type Tier struct {
	Tier          string `json:"tier"`
	NewlyDenied   int64  `json:"newly_denied"`
	NewlyAdmitted int64  `json:"newly_admitted"`
}

// Key is a client that the candidate decides otherwise.
type Key struct {
	Denier
	// Key is what the rule counts the client under; of an entry of a list, what it
	// looks at. Secrets are hashes.
	Key string `json:"key"`
	// Count is how often. It may be too high by Over.
	Count int64 `json:"count"`
	Over  int64 `json:"over,omitempty"`
}

// topKeys is how many keys a report has of each kind.
const topKeys = 20

// Report returns what was found since the last change of a policy. Without keys
// it shows nothing of clients.
func (t *Trial) Report(keys bool) Report {
	live, candidate := t.options.Live(), t.options.Policy()
	began := t.began.UTC().Truncate(time.Millisecond)
	r := Report{Live: versionOf(live), Since: began, CountingSince: began, Rules: []Split{}, KeysHidden: !keys}
	if candidate.Set == nil {
		return r
	}
	v := versionOf(candidate)
	r.Candidate = &v
	r.InProgress = rebounds(live.Set, candidate.Set)
	f := t.compared(live, candidate)
	if f == nil {
		// A policy was changed just now.
		return r
	}
	r.Since = f.since.UTC().Truncate(time.Millisecond)
	r.BothAdmitted, r.BothDenied = f.outcomes[bothAdmitted].Load(), f.outcomes[bothDenied].Load()
	r.NewlyDenied, r.NewlyAdmitted = f.outcomes[newlyDenied].Load(), f.outcomes[newlyAdmitted].Load()
	r.Undecidable = f.outcomes[undecidable].Load()
	r.Compared = r.BothAdmitted + r.BothDenied + r.NewlyDenied + r.NewlyAdmitted + r.Undecidable
	r.NotCompared = NotCompared{f.missed[dropped].Load(), f.missed[undecided].Load(), f.missed[unanswered].Load()}
	r.Rules, r.OtherRules = f.rules()
	if keys {
		if why := f.why.Load(); why != nil {
			r.WhyUndecidable = *why
		}
		r.TopNewlyDenied, r.TopNewlyAdmitted = f.denied.top(topKeys), f.admitted.top(topKeys)
	}
	return r
}

// Merge adds what another server has found, if it compares the same two policies, and reports whether it
// does. Since is then that of the server that began first, and CountingSince that of the one that began
// to count last.
func (r *Report) Merge(with Report) bool {
	if r.Candidate == nil || with.Candidate == nil || r.Live.Hash != with.Live.Hash || r.Candidate.Hash != with.Candidate.Hash {
		return false
	}
	if with.Since.Before(r.Since) {
		r.Since = with.Since
	}
	if with.CountingSince.After(r.CountingSince) {
		r.CountingSince = with.CountingSince
	}
	if r.Failed == nil {
		r.Failed = with.Failed
	}
	r.WhyUndecidable = cmp.Or(r.WhyUndecidable, with.WhyUndecidable)
	r.Crowded += with.Crowded
	to, from := r.sums(), with.sums()
	for i := range to {
		*to[i] += *from[i]
	}
	r.Rules = merged(r.Rules, with.Rules, func(s Split) Denier { return s.Denier }, func(s *Split, with Split) {
		s.NewlyDenied, s.NewlyAdmitted, s.Undecidable = s.NewlyDenied+with.NewlyDenied, s.NewlyAdmitted+with.NewlyAdmitted, s.Undecidable+with.Undecidable
		s.Tiers = merged(s.Tiers, with.Tiers, func(t Tier) string { return t.Tier }, func(t *Tier, with Tier) {
			t.NewlyDenied, t.NewlyAdmitted = t.NewlyDenied+with.NewlyDenied, t.NewlyAdmitted+with.NewlyAdmitted
		})
	})
	sortSplits(r.Rules)
	r.TopNewlyDenied, r.TopNewlyAdmitted = mergeKeys(r.TopNewlyDenied, with.TopNewlyDenied), mergeKeys(r.TopNewlyAdmitted, with.TopNewlyAdmitted)
	return true
}

// sums are the figures that are added up.
func (r *Report) sums() []*int64 {
	return []*int64{
		&r.Compared, &r.BothAdmitted, &r.BothDenied, &r.NewlyDenied, &r.NewlyAdmitted, &r.Undecidable,
		&r.NotCompared.Dropped, &r.NotCompared.Undecided, &r.NotCompared.Unanswered, &r.OtherRules,
	}
}

// merged adds each element to the one of the same name, or appends it.
func merged[T any, N comparable](to, with []T, name func(T) N, add func(to *T, with T)) []T {
	for _, one := range with {
		if i := slices.IndexFunc(to, func(t T) bool { return name(t) == name(one) }); i >= 0 {
			add(&to[i], one)
		} else {
			to = append(to, one)
		}
	}
	return to
}

// mergeKeys adds up two lists of keys. A key that a full list has not may have been in it as often as
// the last one: that is added to its count, and to how much the count may be too high.
func mergeKeys(a, b []Key) []Key {
	absent := func(list []Key) int64 {
		if len(list) < topKeys {
			return 0
		}
		return list[len(list)-1].Count
	}
	inA, inB := absent(a), absent(b)
	raise := func(list, other []Key, by int64) []Key {
		list = slices.Clone(list)
		for i := range list {
			if k := &list[i]; !slices.ContainsFunc(other, func(o Key) bool { return o.Denier == k.Denier && o.Key == k.Key }) {
				k.Count, k.Over = k.Count+by, k.Over+by
			}
		}
		return list
	}
	all := merged(raise(a, b, inB), raise(b, a, inA), func(k Key) counter { return counter{k.Denier, k.Key} }, func(k *Key, with Key) {
		k.Count, k.Over = k.Count+with.Count, k.Over+with.Over
	})
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.compare(b.Denier), strings.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), topKeys)]
}

func sortSplits(list []Split) {
	for i := range list {
		slices.SortFunc(list[i].Tiers, func(a, b Tier) int {
			return cmp.Or(cmp.Compare(b.NewlyDenied+b.NewlyAdmitted, a.NewlyDenied+a.NewlyAdmitted), strings.Compare(a.Tier, b.Tier))
		})
	}
	slices.SortFunc(list, func(a, b Split) int {
		return cmp.Or(cmp.Compare(b.differences(), a.differences()), a.compare(b.Denier))
	})
}

func versionOf(p decide.Policy) Version { return Version{p.Version, p.Hash, len(p.Rules())} }

// rules puts the splits together, those with the most differences first.
func (f *figures) rules() ([]Split, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[Denier]*Split)
	tiers := make(map[Denier]map[string]*Tier)
	for s, n := range f.splits {
		if all[s.by] == nil {
			all[s.by], tiers[s.by] = &Split{Denier: s.by}, make(map[string]*Tier)
		}
		tier := tiers[s.by][s.tier]
		if tier == nil {
			tier = &Tier{Tier: s.tier}
			tiers[s.by][s.tier] = tier
		}
		switch s.outcome {
		case newlyDenied:
			all[s.by].NewlyDenied += n
			tier.NewlyDenied += n
		case newlyAdmitted:
			all[s.by].NewlyAdmitted += n
			tier.NewlyAdmitted += n
		default:
			all[s.by].Undecidable += n
		}
	}
	list := make([]Split, 0, len(all))
	for by, s := range all {
		for name, tier := range tiers[by] {
			if name != "" {
				s.Tiers = append(s.Tiers, *tier)
			}
		}
		list = append(list, *s)
	}
	sortSplits(list)
	return list, f.others
}

func (s *Split) differences() int64 { return s.NewlyDenied + s.NewlyAdmitted + s.Undecidable }

// Count is one figure since the trial began, for metrics.
type Count struct {
	// Outcome is "both_admitted", "both_denied", "newly_denied", "newly_admitted"
	// or "undecidable"; or, of a request that was not compared, "dropped",
	// "undecided" or "unanswered".
	Outcome string
	// Denier is what decides a difference, where counts are by that.
	Denier
	Count int64
}

// Outcomes returns how many requests there were of each outcome, and how many were
// not compared by reason, since the trial began.
func (t *Trial) Outcomes() (compared, notCompared []Count) {
	for i := range t.total.outcomes {
		compared = append(compared, Count{Outcome: outcomeNames[i], Count: t.total.outcomes[i].Load()})
	}
	for i := range t.total.missed {
		notCompared = append(notCompared, Count{Outcome: missedNames[i], Count: t.total.missed[i].Load()})
	}
	return compared, notCompared
}

// Differences returns how many requests were decided otherwise since the trial
// began, by what decides.
func (t *Trial) Differences() []Count {
	f := t.total
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Count, 0, len(f.splits))
	for s, n := range f.splits {
		all = append(all, Count{outcomeNames[s.outcome], s.by, n})
	}
	return all
}
