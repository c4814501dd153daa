package policy

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy/models"
)

// Models says what is known of language models.
func Models(all ...models.Model) Option {
	return func(o *options) { o.models = slices.Clone(all) }
}

// MoneyUnit sets the unit in which money is counted, in millionths of the currency: a power of ten
// from 1, the default, to models.MicroUnits. What a request costs is rounded up to it. A larger unit
// allows limits above nine billion of the currency, because a limit has at most headgate.MaxCount units.
func MoneyUnit(micros int64) Option {
	return func(o *options) { o.moneyUnit = micros }
}

// tableOf returns the table of the models, and reports what is wrong with them.
func (o *options) tableOf() *models.Table {
	table, problems := models.New(o.models, o.moneyUnit)
	for _, p := range problems {
		o.bad(p.Field, Position{}, "%s", p.Text)
	}
	for i := range o.models[:min(len(o.models), models.MaxModels)] {
		m := &o.models[i]
		if m.OutputTiers == nil {
			continue
		}
		bad := func(format string, args ...any) {
			o.bad(fmt.Sprintf("models.%d", i), Position{}, "the model %s: max_output: %s", Quote(m.Name), fmt.Sprintf(format, args...))
		}
		if problem := checkEntryName(m.OutputTiers.Entry); problem != "" {
			bad("%s", problem)
		}
		if n := len(m.OutputTiers.Values); n < 1 || n > MaxTiers {
			bad("there are numbers for %d values of %q, must be 1 to %d", n, m.OutputTiers.Entry, MaxTiers)
		}
		for value, n := range m.OutputTiers.Values {
			if value == "" || len(value) > MaxValue || n < 1 || n > models.MaxTokens {
				bad("the value %s has the number %d, must be 1 to %d for a value of 1 to %d bytes", Quote(value), n, models.MaxTokens, MaxValue)
			}
		}
	}
	return table
}

// Models are the models that the set knows.
func (s *Set) Models() *models.Table { return s.models }

// Model returns what is known of the model of that name for a request: its MaxOutput is the one that
// the request has by its entries. See [models.Table.Find].
func (s *Set) Model(name string, d Descriptor) models.Model {
	m := s.models.Find(name)
	if m.OutputTiers != nil {
		value, _ := s.known(d).Get(m.OutputTiers.Entry)
		if most, ok := m.OutputTiers.Values[value]; ok {
			m.MaxOutput = most
		}
	}
	return m
}

// Counts reports whether some rule of the set counts what models use. If not, nobody has to know it.
func (s *Set) Counts() bool { return s.counts }

// units returns how many units a request has under what a rule counts, before the rule's factor. A
// request that is no call of a model has none under a rule that counts what models use. The problem
// says why the number is not known, and is empty otherwise.
func (s *Set) units(counted models.Counted, cost int64, u *models.Usage) (units int64, problem string) {
	switch {
	case counted == models.Requests:
		return max(cost, 1), ""
	case u == nil:
		return 0, ""
	}
	return s.models.Units(counted, u)
}

// DecideUsage is [Set.Decide] for a call to a language model: rules that count tokens or money bind
// it at what u says. Nil is a request of which that is not known, so that these rules do not bind
// it, as they do not bind a call that costs nothing under them. The error may also say that the
// model has no price.
func (s *Set) DecideUsage(d Descriptor, cost int64, u *models.Usage, dst []headgate.Check) (Outcome, error) {
	out, err := s.bind(d, cost, u, dst, true)
	if err == nil {
		s.dropReplaced(&out, len(dst))
	}
	return out, err
}

// Ahead is Decide for a call to a language model whose body was not read yet, so that the entry
// "model" and the usage are not known. What it returns binds the call whatever they are: an entry of
// the deny list, or checks. It leaves out what depends on them, and Bounds.
func (s *Set) Ahead(d Descriptor, dst []headgate.Check) Outcome {
	if s.byModel {
		return Outcome{Checks: dst}
	}
	out, err := s.bind(d, 1, nil, dst, true)
	if err != nil {
		return Outcome{Checks: dst}
	}
	own := out.Checks[len(dst):]
	out.Checks, out.Bounds = dst, nil
	for i := range own {
		if s.compiled[s.names[own[i].Rule.Name()]].ahead {
			out.Checks = append(out.Checks, own[i])
		}
	}
	return out
}

// compileAhead finds out which rules bind a call whatever its model, and whether that can be said at
// all: a list may exempt a model, or answer a request that has none.
func (s *Set) compileAhead() {
	depends := func(entries []ListEntry, on func(c *Condition) bool) bool {
		return slices.ContainsFunc(entries, func(e ListEntry) bool {
			return slices.ContainsFunc(e.Match, func(c Condition) bool { return c.Entry == models.Entry && on(&c) })
		})
	}
	s.byModel = depends(s.options.allow, func(*Condition) bool { return true }) || depends(s.options.deny, func(c *Condition) bool { return c.Not }) ||
		s.options.subjects != nil && s.options.subjects.By == models.Entry
	for i := range s.rules {
		r, c := &s.rules[i], &s.compiled[i]
		c.ahead = r.Counts == models.Requests && c.replacedBy == nil
		r.eachEntry(func(_, entry string) { c.ahead = c.ahead && entry != models.Entry })
	}
}

// Spending is what observers are told of a call that was settled: what it has used, if known, and what
// each check of its reservation was settled at.
func (s *Set) Spending(used models.Usage, known bool, r *headgate.Reservation, units []int64) *models.Spending {
	out := &models.Spending{Models: s.models, Used: used, Known: known}
	for i := range r.Checks {
		c := &r.Checks[i]
		if rule := s.Rule(c.Rule.Name()); rule != nil && rule.Counts != models.Requests {
			out.Charges = append(out.Charges, models.Charge{Rule: c.Rule.Name(), Key: c.Key, Counts: rule.Counts, Units: units[i]})
		}
	}
	return out
}
