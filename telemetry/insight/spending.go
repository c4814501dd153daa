package insight

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/policy/models"
)

// Spent is what calls to language models have used.
type Spent struct {
	Calls int64 `json:"calls"`
	// Estimated is how many of the calls have ended without the provider's word on what they used. They
	// have no part in the tokens and the money.
	Estimated    int64 `json:"estimated"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Micros is what the tokens cost, in millionths of the currency.
	Micros int64 `json:"micros"`
}

func (s *Spent) add(o Spent) {
	s.Calls, s.Estimated, s.Micros = s.Calls+o.Calls, s.Estimated+o.Estimated, s.Micros+o.Micros
	s.InputTokens, s.OutputTokens = s.InputTokens+o.InputTokens, s.OutputTokens+o.OutputTokens
}

// Spender is what a key has spent on a model, under a rule that counts tokens or money.
type Spender struct {
	Rule   string `json:"rule"`
	Counts string `json:"counts"`
	Key    Name   `json:"key"`
	// Known is what the table of subjects has of the key, or "".
	Known string `json:"known,omitempty"`
	// Model is the entry of the policy's models that counts for the model, or "other".
	Model string `json:"model"`
	// Charged is what the rule was charged, in its units, with what was estimated.
	Charged int64 `json:"charged"`
	Spent
}

// Spending is who has spent what.
type Spending struct {
	// Since is when the counting began, in milliseconds since 1970.
	Since int64 `json:"since"`
	// Models have what was spent on each model, each call once. Their Rule and Key are empty.
	Models []Spender `json:"models"`
	// Spenders are those who have spent most. A call is counted under each rule that counts it.
	Spenders []Spender `json:"spenders"`
	// Dropped is how many spenders were forgotten, those who had spent least, because there were too
	// many.
	Dropped int64 `json:"dropped"`
}

// The bounds of what is known of spending. Keys have at most headgate.MaxKey bytes.
const (
	maxSpenders = 2000
	maxSpentOn  = 200
)

type spenderID struct{ rule, key, model string }

// spending counts what calls to language models spend, from when the recorder was made.
type spending struct {
	mu       sync.Mutex // guards what follows
	models   map[string]*Spender
	spenders map[spenderID]*Spender
	dropped  int64
}

// Spent counts a call that was settled.
func (r *Recorder) Spent(s *models.Spending) {
	one := Spent{Calls: 1}
	if s.Known {
		one.InputTokens, one.OutputTokens = s.Used.Input, s.Used.Output
		if micros, priced := s.Micros(); priced {
			one.Micros = micros
		}
	} else {
		one.Estimated = 1
	}
	label := s.Label()
	r.spending.mu.Lock()
	defer r.spending.mu.Unlock()
	r.spending.model(label).add(one)
	for _, c := range s.Charges {
		to := r.spending.spender(spenderID{c.Rule, c.Key, label}, c.Counts)
		to.add(one)
		to.Charged += c.Units
	}
}

func (s *spending) model(label string) *Spender {
	m := s.models[label]
	if m == nil {
		if len(s.models) >= maxSpentOn {
			label = models.Other
		}
		if m = s.models[label]; m == nil {
			if s.models == nil {
				s.models = make(map[string]*Spender)
			}
			m = &Spender{Model: label}
			s.models[label] = m
		}
	}
	return m
}

func (s *spending) spender(id spenderID, counts models.Counted) *Spender {
	to := s.spenders[id]
	if to != nil {
		return to
	}
	if s.spenders == nil {
		s.spenders = make(map[spenderID]*Spender)
	}
	if len(s.spenders) >= maxSpenders {
		// Half of them go at once, so that making room costs little for each.
		all := s.sorted()
		for _, o := range all[maxSpenders/2:] {
			delete(s.spenders, spenderID{o.Rule, o.Key.Raw, o.Model})
			s.dropped++
		}
	}
	id.key = strings.Clone(id.key)
	to = &Spender{Rule: id.rule, Counts: counts.String(), Key: Name{Raw: id.key}, Model: id.model}
	s.spenders[id] = to
	return to
}

func (s *spending) sorted() []Spender {
	all := make([]Spender, 0, len(s.spenders))
	for _, o := range s.spenders {
		all = append(all, *o)
	}
	slices.SortFunc(all, moreSpent)
	return all
}

// moreSpent orders by money, then by tokens.
func moreSpent(a, b Spender) int {
	return cmp.Or(
		cmp.Compare(b.Micros, a.Micros), cmp.Compare(b.InputTokens+b.OutputTokens, a.InputTokens+a.OutputTokens), cmp.Compare(b.Charged, a.Charged),
		strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key.Raw, b.Key.Raw), strings.Compare(a.Model, b.Model),
	)
}

// Spending returns who has spent most, and what was spent on each model.
func (r *Recorder) Spending(most int) Spending {
	s := &r.spending
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Spending{Since: r.since.UnixMilli(), Models: []Spender{}, Spenders: s.sorted(), Dropped: s.dropped}
	for _, m := range s.models {
		out.Models = append(out.Models, *m)
	}
	out.sort(most)
	return out
}

// Merge adds what another recorder knows.
func (s *Spending) Merge(o Spending, most int) {
	s.Since, s.Dropped = min(s.Since, o.Since), s.Dropped+o.Dropped
	join := func(to *[]Spender, with []Spender) {
		mergeBy(to, with, func(s *Spender) string { return s.Rule + "\x00" + s.Key.Raw + "\x00" + s.Model }, func(to, with *Spender) {
			to.add(with.Spent)
			to.Charged += with.Charged
		})
	}
	join(&s.Models, o.Models)
	join(&s.Spenders, o.Spenders)
	s.sort(most)
}

func (s *Spending) sort(most int) {
	slices.SortFunc(s.Models, moreSpent)
	slices.SortFunc(s.Spenders, moreSpent)
	s.Models, s.Spenders = s.Models[:min(len(s.Models), most)], s.Spenders[:min(len(s.Spenders), most)]
}
