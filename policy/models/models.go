// Package models knows language models: what they are called and what they cost, and so what a call
// that has used so many tokens counts under a rule. It knows no rules and no requests: package policy
// asks it for units, and doors and metrics ask it for names and prices.
package models

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Entry is the name of the entry with the model of a call.
const Entry = "model"

// Counted is what the limits of a rule count.
type Counted uint8

// What rules count. All but Requests are known only of calls to language models, which come
// with a [Usage].
const (
	Requests Counted = iota
	InputTokens
	OutputTokens
	Tokens // of input and output together
	Money  // in the unit of the [Table], by its prices

	counteds // the number of them
)

var countedNames = [counteds]string{"requests", "input_tokens", "output_tokens", "tokens", "money"}

// String returns the word as it is written in rules.
func (c Counted) String() string {
	if c < counteds {
		return countedNames[c]
	}
	return fmt.Sprintf("counted(%d)", uint8(c))
}

// Known reports whether it is one of them.
func (c Counted) Known() bool { return c < counteds }

// Term is how long a reservation lasts under rules that count what models use and do not say it
// themselves: as long as a model may take for one answer.
const Term = 15 * time.Minute

// Usage is what a call to a language model has used or, before that, what it may use at most.
// All numbers are tokens, 0 to MaxTokens.
type Usage struct {
	// Model is the model whose prices count, as the provider knows it.
	Model string
	// Input are all tokens of input. CachedInput are those of them that the provider had in its
	// cache, and CacheWrite those that it has put there; their prices may differ.
	Input, CachedInput, CacheWrite int64
	// Output are the tokens of output, with those of reasoning.
	Output int64
}

// Model is what is known of a language model, or of all whose names have the same beginning.
type Model struct {
	// Name is the model's name, or the beginning of several followed by "*". Of several that match
	// a name, the longest counts. Required.
	Name string
	// Is names the model that calls of this one are sent to. Everything else is then that one's.
	Is string
	// Priced says that Input and Output are known.
	Priced bool
	// Input, CachedInput, CacheWrite and Output are the prices of a million tokens, in millionths of
	// the currency, 0 to MaxPrice. A CachedInput or CacheWrite of 0 means that it costs as much as
	// other input.
	Input, CachedInput, CacheWrite, Output int64
	// MaxInput is the largest input that the model accepts, and Image how many tokens an image has at
	// most. They bound what the bytes of a request do not. Zero means not known.
	MaxInput, Image int64
	// MaxOutput is the largest output that a request may ask for. Zero means that nothing bounds it.
	// If there are OutputTiers, it is for requests of which they say nothing.
	MaxOutput   int64
	OutputTiers *OutputTiers
}

// OutputTiers are largest outputs, 1 to MaxTokens, by the value of an entry, such as "tier".
type OutputTiers struct {
	Entry  string
	Values map[string]int64
}

// The bounds of a [Table].
const (
	// MaxModels is how many models a table may have.
	MaxModels = 10_000
	// MaxTokens is the largest number of tokens of each kind.
	MaxTokens = 1_000_000_000
	// MaxPrice is the highest price of a million tokens: a million of the currency.
	MaxPrice = 1_000_000_000_000
	// MicroUnits is how many millionths of the currency are one of it.
	MicroUnits = 1_000_000

	// maxName is the longest name of a model, which is the value of an entry.
	maxName = 8192
)

// Table is what is known of language models. It is immutable and safe for concurrent use; make one
// with [New].
type Table struct {
	all  []Model
	unit int64
	// names are the models by their whole names, and prefixes those with a star.
	names    map[string]int32
	prefixes []int32
}

// New returns the table of the models, and everything that is wrong with them. The unit is that in
// which money is counted, in millionths of the currency: a power of ten from 1 to MicroUnits. What a
// call costs is rounded up to it.
func New(all []Model, unit int64) (*Table, headgate.Problems) {
	var problems headgate.Problems
	if !slices.Contains([]int64{1, 10, 100, 1000, 10_000, 100_000, MicroUnits}, unit) {
		problems.Add("money_unit", "the unit of money is %d millionths, must be a power of ten from 1 to %d", unit, MicroUnits)
	}
	if len(all) > MaxModels {
		problems.Add("models", "there are %d models, must be at most %d", len(all), MaxModels)
		return nil, problems
	}
	t := &Table{all: slices.Clone(all), unit: unit, names: make(map[string]int32)}
	seen := make(map[string]bool, len(all))
	for i := range t.all {
		m := &t.all[i]
		m.check(seen[m.Name], func(format string, args ...any) {
			problems.Add(fmt.Sprintf("models.%d", i), "the model %.64q"+format, append([]any{m.Name}, args...)...)
		})
		seen[m.Name] = true
		if strings.HasSuffix(m.Name, "*") {
			t.prefixes = append(t.prefixes, int32(i))
		} else {
			t.names[m.Name] = int32(i)
		}
	}
	for i := range t.all {
		if m := &t.all[i]; m.Is != "" && slices.ContainsFunc(t.all, func(n Model) bool { return n.Name == m.Is && n.Is != "" }) {
			problems.Add(fmt.Sprintf("models.%d", i), "the model %.64q stands for %.64q, which stands for another one; name that one", m.Name, m.Is)
		}
	}
	return t, problems
}

// check reports what is wrong with the model, whose name may be taken. The texts follow its name.
func (m *Model) check(taken bool, bad func(format string, args ...any)) {
	star := strings.IndexByte(m.Name, '*')
	switch {
	case m.Name == "" || len(m.Name) > maxName:
		bad(" has a name of %d bytes, must have 1 to %d", len(m.Name), maxName)
	case star >= 0 && star < len(m.Name)-1:
		bad(" has a star that is not its last character")
	case taken:
		bad(" is there twice; keep one")
	case m.Is != "" && (star >= 0 || *m != Model{Name: m.Name, Is: m.Is}):
		bad(" stands for another one, so it has a whole name and nothing else")
	}
	for _, n := range []struct {
		name        string
		value, most int64
	}{
		{"input", m.Input, MaxPrice},
		{"cached_input", m.CachedInput, MaxPrice},
		{"cache_write", m.CacheWrite, MaxPrice},
		{"output", m.Output, MaxPrice},
		{"max_input", m.MaxInput, MaxTokens},
		{"image", m.Image, MaxTokens},
		{"max_output", m.MaxOutput, MaxTokens},
	} {
		if n.value < 0 || n.value > n.most {
			bad(": %s is %d, must be 0 to %d", n.name, n.value, n.most)
		}
	}
}

// All are the models of the table. They are shared and must not be changed.
func (t *Table) All() []Model { return t.all }

// Unit is the unit in which money is counted, in millionths of the currency.
func (t *Table) Unit() int64 { return t.unit }

// Find returns what is known of the model of that name or, if the name stands for another model, of
// that one. Its Name is then the name that the provider knows, and without "*". A model of which
// nothing is known has only a Name.
func (t *Table) Find(name string) Model {
	m := t.longest(name)
	if m.Is != "" {
		name = m.Is
		m = t.longest(name)
	}
	m.Name = name
	return m
}

// longest returns the model with the longest name that matches.
func (t *Table) longest(name string) (found Model) {
	length := -1
	if i, ok := t.names[name]; ok {
		return t.all[i]
	}
	for _, i := range t.prefixes {
		m := &t.all[i]
		if prefix := m.Name[:len(m.Name)-1]; len(prefix) > length && strings.HasPrefix(name, prefix) {
			found, length = *m, len(prefix)
		}
	}
	return found
}

// Other is the label of the models that are not in the policy.
const Other = "other"

// Label returns the name of the entry among the models that counts for this one, such as
// "gpt-5*", or Other. Unlike names, which clients choose, labels are bounded by the table.
func (t *Table) Label(name string) string {
	m := t.longest(name)
	if m.Is != "" {
		m = t.longest(m.Is)
	}
	if m.Name == "" {
		return Other
	}
	return m.Name
}

// Units returns how many units the usage is of what is counted, which is not Requests. The problem
// says why the number is not known, and is empty otherwise.
func (t *Table) Units(counted Counted, u *Usage) (units int64, problem string) {
	for _, n := range [...]int64{u.Input, u.CachedInput, u.CacheWrite, u.Output} {
		if n < 0 || n > MaxTokens {
			return 0, fmt.Sprintf("the usage has %d tokens, must be 0 to %d", n, MaxTokens)
		}
	}
	if u.CachedInput+u.CacheWrite > u.Input {
		return 0, fmt.Sprintf("the usage has %d tokens of input, and %d of them from or for the cache", u.Input, u.CachedInput+u.CacheWrite)
	}
	switch counted {
	case InputTokens:
		units = u.Input
	case OutputTokens:
		units = u.Output
	case Tokens:
		units = u.Input + u.Output
	case Money:
		m := t.Find(u.Model)
		if !m.Priced {
			return 0, fmt.Sprintf("the model %.64q has no price; give it one under models, or all others one as \"*\"", m.Name)
		}
		units = m.price(u, t.unit)
	}
	return units, ""
}

// price returns what the usage costs in units of so many millionths, rounded up, and at most
// headgate.MaxCount, which no usage of up to MaxTokens costs. It is exact: a price of millionths for a
// million tokens makes one token cost whole billionths of a thousandth, which are added up in 128 bits.
func (m *Model) price(u *Usage, unit int64) int64 {
	cached, written := m.CachedInput, m.CacheWrite
	if cached == 0 {
		cached = m.Input
	}
	if written == 0 {
		written = m.Input
	}
	var high, low uint64
	for _, part := range [...][2]int64{
		{u.Input - u.CachedInput - u.CacheWrite, m.Input}, {u.CachedInput, cached}, {u.CacheWrite, written}, {u.Output, m.Output},
	} {
		h, l := bits.Mul64(uint64(part[0]), uint64(part[1]))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high += h + carry
	}
	divisor := MicroUnits * uint64(unit)
	if high >= divisor {
		return headgate.MaxCount
	}
	units, rest := bits.Div64(high, low, divisor)
	if rest > 0 {
		units++
	}
	return int64(min(units, headgate.MaxCount))
}

// Micros returns what the usage costs, in millionths of the currency. It is not known for a model
// without a price.
func (t *Table) Micros(u *Usage) (micros int64, known bool) {
	m := t.Find(u.Model)
	return m.price(u, 1), m.Priced
}

// Amount returns units of what is counted in tokens, or in the currency if it is money.
func (t *Table) Amount(counts Counted, units int64) float64 {
	if counts == Money {
		return float64(units) * float64(t.unit) / MicroUnits
	}
	return float64(units)
}

// Spending is a call to a language model whose end was settled. Observers are told of it, and it
// has nothing of what was said in the call.
type Spending struct {
	// Models has the prices.
	Models *Table
	// Used is what the call has used, if Known is set: the provider has said all of it. Otherwise it
	// is an estimate, and has no numbers if nobody knows them any more.
	Used  Usage
	Known bool
	// Charges are what was charged under the rules that count tokens or money.
	Charges []Charge
	// FirstChunk is how long the first part of a streamed answer took. Zero means that it is not known,
	// or that the answer was no stream.
	FirstChunk time.Duration
}

// Charge is what a call was charged under one rule and key.
type Charge struct {
	Rule, Key string
	Counts    Counted
	Units     int64
}

// Label is the label of the call's model.
func (s *Spending) Label() string { return s.Models.Label(s.Used.Model) }

// Micros returns what the use costs; see [Table.Micros].
func (s *Spending) Micros() (micros int64, known bool) { return s.Models.Micros(&s.Used) }

// By says by what the call was charged, as a label: "usage" that the provider has stated, or "estimate".
func (s *Spending) By() string {
	if s.Known {
		return "usage"
	}
	return "estimate"
}
