package insightapi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/telemetry/insight"
)

// Outage says that a store does not answer, as one instance sees it.
type Outage struct {
	// State is that of [Store].
	State string `json:"state"`
	// Since is when it began, in milliseconds since 1970, and Cause the error of the first calls.
	Since int64  `json:"since"`
	Cause string `json:"cause,omitempty"`
	// Rules say what each rule does meanwhile, by its on_store_error.
	Rules []RuleOutage `json:"rules"`
}

// RuleOutage says what a rule does while the store does not answer, such as "refuses all".
type RuleOutage struct {
	Rule string `json:"rule"`
	Does string `json:"does"`
}

// does returns what the rule does meanwhile, or "". There may be no outage.
func (o *Outage) does(rule string) string {
	if o != nil {
		if i := slices.IndexFunc(o.Rules, func(r RuleOutage) bool { return r.Rule == rule }); i >= 0 {
			return o.Rules[i].Does
		}
	}
	return ""
}

// Mark is something that happened, for charts to mark.
type Mark = history.Mark

// Marks is the answer to GET marks.
type Marks struct {
	// Marks are in the order of time.
	Marks     []Mark     `json:"marks"`
	Instances []Instance `json:"instances"`
}

// same is how far apart the clocks and the reloads of instances may be for one change of the policy.
const same = time.Minute

// Happened returns what has happened to this instance since its start.
func (h *Handler) Happened() []Mark {
	own := []Mark{{At: h.o.Recorder.Since().UnixMilli(), Kind: "start", Text: "the instance " + h.o.Name + " was started"}}
	if h.o.Outages != nil {
		own = append(own, h.o.Outages()...)
	}
	if h.o.Changes != nil {
		for _, c := range h.o.Changes() {
			if m, ok := c.mark(); ok {
				own = append(own, m)
			}
		}
	}
	return own
}

func (h *Handler) marks(q *query) (any, *failure) {
	all := h.Happened()
	add := func(part []Mark, within time.Duration) {
		for _, m := range part {
			seen := func(o Mark) bool {
				return m.Kind == o.Kind && (m.Text == o.Text || within > same) && max(m.At-o.At, o.At-m.At) <= within.Milliseconds()
			}
			if !slices.ContainsFunc(all, seen) {
				all = append(all, m)
			}
		}
	}
	if h.beyond(q) && (!q.local || !h.o.History.Whole()) {
		// Without them, charts have the curves nevertheless, whose questions tell what is wrong.
		past, _ := h.o.History.Marks(q.ctx, q.of.Until.Add(-q.of.Of), q.of.Until)
		within := time.Duration(0) // A part has the marks of this instance once more.
		if h.o.History.Whole() {
			within = max(2*same, q.of.Of/100) // Then they have other texts, and times that are not exact.
		}
		add(past, within)
	}
	rest := *q
	rest.path = "marks"
	parts, instances := ask[[]Mark](h, &rest)
	for _, part := range parts {
		add(part, same)
	}
	slices.SortStableFunc(all, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	return h.whole(q, all, func() any { return Marks{all, instances} })
}

// mark returns the mark of a change. It reports false for the start, which changes nothing.
func (c *Change) mark() (Mark, bool) {
	m := Mark{At: c.At, Kind: "policy"}
	if c.Failed != "" {
		m.Kind, m.Text = "reload", "a new policy was not taken: "+c.Failed
		return m, true
	}
	var texts []string
	for _, r := range c.Changed {
		texts, m.Rules = append(texts, r.Rule+": "+r.Before+" → "+r.After), append(m.Rules, r.Rule)
	}
	for _, list := range []struct {
		what  string
		rules []string
	}{{"added ", c.Added}, {"removed ", c.Removed}} {
		if len(list.rules) > 0 {
			texts, m.Rules = append(texts, list.what+strings.Join(list.rules, ", ")), append(m.Rules, list.rules...)
		}
	}
	if len(texts) == 0 && c.Version <= 1 {
		return m, false
	}
	m.Text = fmt.Sprintf("policy version %d: %s", c.Version, cmp.Or(strings.Join(texts, "; "), "the rules are the same, something else has changed"))
	return m, true
}

// Answer is the answer to one question about a key. A time in its text is written {t:SECONDS}, in
// seconds since 1970, so that pages can show it in the reader's time zone.
type Answer struct {
	// Question is "who", "rule", "why", "since", "us" (is it us or the client?), "needs" or "changed".
	Question string `json:"question"`
	Text     string `json:"text"`
}

func at(seconds int64) string { return "{t:" + strconv.FormatInt(seconds, 10) + "}" }

// story has what the answers about a key are made of.
type story struct {
	*KeyReport
	rule    *policy.Rule
	outage  *Outage
	marks   []Mark
	denied  insight.Top // of the rule
	now     int64       // seconds since 1970
	slow    string      // see [Handler.Slow]
	counts  insight.KeyCounts
	unknown bool   // what the key has used is not known
	full    *State // the limit for which nothing passes, or nil
	// moneyUnit is the unit of money, in millionths of the currency.
	moneyUnit int64
}

// slowFrom is how long one call in a hundred to the store takes when it is slow, and slowCalls how many
// calls are enough to tell.
const (
	slowFrom  = 50 * time.Millisecond
	slowCalls = 100
)

// Slow returns how long one call in a hundred to the store took or longer in the last minute or two, or
// "" if that is not slow.
func (h *Handler) Slow() string {
	if h.o.Store == nil {
		return ""
	}
	s := h.o.Store(insight.Last(2 * time.Minute))
	if p99 := time.Duration(s.Range.P99) * time.Microsecond; p99 >= slowFrom && s.Range.Calls >= slowCalls {
		return span(p99)
	}
	return ""
}

// lately is within which time something is going on still, in seconds.
const lately = 180

// changeTells is how long after a change of the policy the first denial may come to be its effect, in
// seconds. Denials are known by the minute.
const changeTells = 180

// answers answers the seven questions that people ask at night.
func (s *story) answers() []Answer {
	for i := range s.States {
		state := &s.States[i]
		switch {
		case !state.known():
			s.unknown = s.unknown || state.Rule == s.rule.Name
		case state.Mode == policy.ModeEnforce.String() && state.Remaining <= 0 && (s.full == nil || state.RetryAfterMS > s.full.RetryAfterMS):
			s.full = state
		}
	}
	return []Answer{
		{"who", s.who()},
		{"rule", s.which()},
		{"why", s.why() + s.counted()},
		{"since", s.since()},
		{"us", s.us() + s.delays()},
		{"needs", s.needs()},
		{"changed", s.changed()},
	}
}

func (s *story) who() string {
	text := s.Key.Text()
	if len(s.rule.Per) == 0 {
		return "All clients together: the rule has one counter for all."
	}
	names := make([]string, len(s.rule.Per))
	for i := range s.rule.Per {
		names[i] = s.rule.Per[i].Entry
	}
	text = strings.Join(names, ", ") + " " + text
	if s.Known != "" {
		text += ", known as " + s.Known
	}
	return text + "."
}

func (s *story) which() string {
	switch does := s.outage.does(s.rule.Name); {
	case s.unknown && does != "":
		return s.rule.Name + ", which " + does + " while the store does not answer."
	case s.full != nil:
		return s.full.Rule + ", by its limit " + s.full.Limit + "."
	case s.counts.Denied != nil && s.counts.Denied.Last > s.now-lately && len(s.Denials) > 0:
		return s.Denials[0].Rule + ", by its limit " + s.Denials[0].Limit + "."
	case s.away():
		return s.rule.Name + ", since the store did not answer."
	case s.counts.Denied != nil:
		return "None at the moment. It was " + s.rule.Name + " until " + at(s.counts.Denied.Last) + "."
	}
	return "None."
}

// away reports whether the store has not decided a part of the key's requests lately: at least a
// twentieth of those of the last minutes. Fewer are a short pause, which explains no denials.
func (s *story) away() bool {
	if s.counts.Away == nil || s.counts.Away.Last <= s.now-lately {
		return false
	}
	asked := int64(0)
	for _, n := range s.counts.Asked[max(0, len(s.counts.Asked)-lately/60-1):] {
		asked += n
	}
	return s.counts.Away.Count*20 >= asked
}

func (s *story) why() string {
	switch {
	case s.unknown && s.outage != nil:
		return "The store does not answer, so that nobody knows what the key has used. " + s.rule.Name + " " + s.outage.does(s.rule.Name) + "."
	case s.unknown:
		return "The store has not answered just now, so that it is not known what the key has used."
	case s.full != nil && s.full.Source == headgate.SourceLocal.String():
		return "It has used up this server's share of " + s.full.Limit + ", because the store does not answer. One more unit fits in " + after(s.full.RetryAfterMS) + "."
	case s.full != nil:
		return s.full.Limit + " is used up. One more unit fits in " + after(s.full.RetryAfterMS) + "."
	case s.counts.Denied != nil && s.counts.Denied.Last > s.now-lately && len(s.Denials) > 0:
		d := &s.Denials[0]
		return fmt.Sprintf("There is room now. When it was denied last, it asked for %s and %s of %s were left.", num(d.Cost), num(d.Remaining), num(d.Capacity))
	case len(s.States) == 0:
		return "The rule has no limits for this key, or not without a tier."
	}
	return "Every limit has room."
}

// counted says what the units are, if they are not requests.
func (s *story) counted() string {
	switch s.rule.Counts {
	case models.Requests:
		return ""
	case models.Money:
		return fmt.Sprintf(" The rule counts money: a unit is %g of the currency.", float64(s.moneyUnit)/models.MicroUnits)
	}
	return " The rule counts " + strings.ReplaceAll(s.rule.Counts.String(), "_", " ") + "."
}

func after(ms int64) string {
	if ms < 0 {
		return "no time: it asks for more than the limit can hold"
	}
	return span(time.Duration(ms) * time.Millisecond)
}

// span spells a duration as the pages do: rounded up as a whole, so that nothing is 59 min 60 s.
func span(d time.Duration) string {
	ceil := func(unit time.Duration) int64 { return int64((d + unit - 1) / unit) }
	s, m := ceil(time.Second), ceil(time.Minute)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ceil(time.Millisecond))
	case d < 10*time.Second:
		tenths := ceil(time.Second / 10)
		return fmt.Sprintf("%d.%d s", tenths/10, tenths%10)
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case m < 24*60:
		return fmt.Sprintf("%d h %d min", m/60, m%60)
	}
	return fmt.Sprintf("%.1f days", float64(s)/86400)
}

// num spells a number as the pages do.
func num(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func (s *story) since() string {
	switch c := &s.counts; {
	case s.away():
		return "Without the store since " + at(c.Away.Since) + "."
	case s.unknown && s.outage != nil:
		return "The store does not answer since " + at(s.outage.Since/1000) + "."
	case c.Denied != nil:
		return "Denied since " + at(c.Denied.Since) + ", and last at " + at(c.Denied.Last) + "."
	}
	return "It was not denied in the time that is known."
}

func (s *story) delays() string {
	if s.slow == "" {
		return ""
	}
	return " The store is slow, which delays clients and denies none: one call in a hundred takes " + s.slow + " or longer."
}

func (s *story) us() string {
	asked, denied := s.counts.Asked, s.counts.Denied
	if s.away() || s.unknown && s.outage != nil {
		return "It is us: the store does not answer, or did not until a moment ago."
	}
	if denied == nil {
		return "Neither: it is not denied."
	}
	for _, m := range slices.Backward(s.marks) {
		if slices.Contains(m.Rules, s.rule.Name) && denied.Since > m.At/1000-60 && denied.Since < m.At/1000+changeTells {
			return "Probably us: the rule was changed at " + at(m.At/1000) + ", and the client is denied since " + at(denied.Since) + "."
		}
	}
	if keys := s.denied.Keys; len(keys) >= 10 && keys[0].Count*5 < s.denied.Total {
		return fmt.Sprintf("Probably us: the rule denies %d clients or more, and none of them has a fifth of the denials. Look at its limit.", len(keys))
	}
	recent, before, minutes := int64(0), int64(0), int64(0)
	for i, n := range asked {
		switch {
		case i >= len(asked)-10:
			recent += n
		case before > 0 || n > 0:
			before += n
			minutes++
		}
	}
	if minutes >= 20 && recent*minutes >= 2*before*10 && before > 0 {
		return fmt.Sprintf("It is the client: it asked for %s units in the last ten minutes, %.1f times as many as before.", num(recent), float64(recent*minutes)/float64(10*before))
	}
	if recent == 0 {
		return "It is the client: it asked for more than its limit, last at " + at(denied.Last) + ". Neither the rule nor the store has changed."
	}
	return fmt.Sprintf("It is the client: it asks for more than its limit, %s units in the last ten minutes. Neither the rule nor the store has changed.", num(recent))
}

func (s *story) needs() string {
	var texts []string
	for i := range s.States {
		if state := &s.States[i]; state.Rule == s.rule.Name && state.Needs != "" {
			texts = append(texts, state.Needs+" instead of "+state.Limit+": it asked for "+state.Asked)
		}
	}
	if len(texts) == 0 {
		return "What it has is enough for what it asked for in the last hour."
	}
	return strings.Join(texts, "; ") + ". What was denied is counted, so that a client that tries again may need less."
}

func (s *story) changed() string {
	var texts []string
	for _, m := range slices.Backward(s.marks) {
		if m.At/1000 < s.now-int64(insight.Kept.Seconds()) || len(texts) == 3 || m.Kind == "policy" && !slices.Contains(m.Rules, s.rule.Name) {
			continue
		}
		text := m.Text + " at " + at(m.At/1000)
		if m.Until > 0 {
			text += " until " + at(m.Until/1000)
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return "Nothing in the last two hours: not the rule, not the store, and no instance was started."
	}
	return strings.Join(texts, "; ") + "."
}

// needed returns the limit, of the same kind as l, at which nothing would have been denied of what was
// asked in the minutes of the last hour, and how many units that was and within which time. It is ""
// if l is enough.
//
// Minutes are added up as if all units of a minute had come at once: a limit per n minutes must hold
// what was asked in any n+1 minutes. Of what came within a minute nothing is known, so for a shorter
// period it is assumed that the busiest minute was even.
func needed(l *headgate.Limit, minutes []int64) (limit, asked string) {
	if l.Algorithm == headgate.Penalty {
		return "", ""
	}
	hour := minutes[max(0, len(minutes)-60):]
	n := int(min((l.Micros()+60e6-1)/60e6, 60)) + 1
	within := strconv.Itoa(n) + " minutes"
	switch {
	case l.Micros() < 60e6:
		n, within = 1, "its busiest minute"
	case n > len(hour):
		n, within = len(hour), "the last hour"
	}
	var most int64
	for i := range hour {
		var sum int64
		for _, units := range hour[i:min(i+n, len(hour))] {
			sum += units
		}
		most = max(most, sum)
	}
	other := *l
	other.Count, other.Burst = most, 0
	if l.Micros() < 60e6 {
		other.Count = muldiv.Up(most, l.Micros(), 60e6, most)
	}
	if most == 0 || other.Count <= l.Count {
		return "", ""
	}
	return other.String(), num(most) + " units in " + within
}
