package policy

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Counted is what the limits of a rule count.
type Counted uint8

// What rules count. All but CountRequests are known only of calls to language models, which come
// with a [Usage].
const (
	CountRequests Counted = iota
	CountInputTokens
	CountOutputTokens
	CountTokens // of input and output together
	CountMoney  // in the unit of [MoneyUnit], by the prices of [Models]

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

// usageTerm is how long a reservation lasts under rules that count what models use and do not say it
// themselves: as long as a model may take for one answer.
const usageTerm = 15 * time.Minute

// Usage is what a call to a language model has used or, before that, what it may use at most.
// All numbers are tokens, 0 to headgate.MaxCount.
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

// OutputTiers are largest outputs, 1 to headgate.MaxCount, by the value of an entry, such as "tier".
type OutputTiers struct {
	Entry  string
	Values map[string]int64
}

// The bounds of [Models].
const (
	// MaxModels is how many models a set may have.
	MaxModels = 10_000
	// MaxPrice is the highest price of a million tokens: a million of the currency.
	MaxPrice = 1_000_000_000_000
	// MicroUnits is how many millionths of the currency are one of it.
	MicroUnits = 1_000_000
)

// Models says what is known of language models.
func Models(models ...Model) Option {
	return func(o *options) { o.models = slices.Clone(models) }
}

// MoneyUnit sets the unit in which money is counted, in millionths of the currency: a power of ten
// from 1, the default, to MicroUnits. What a request costs is rounded up to it. A larger unit allows
// limits above a thousand of the currency, because a limit has at most headgate.MaxCount units.
func MoneyUnit(micros int64) Option {
	return func(o *options) { o.moneyUnit = micros }
}

// checkModels reports what is wrong with the models and the unit of money.
func (o *options) checkModels() {
	bad := func(field, format string, args ...any) { o.bad(field, Position{}, format, args...) }
	if !slices.Contains([]int64{1, 10, 100, 1000, 10_000, 100_000, MicroUnits}, o.moneyUnit) {
		bad("money_unit", "the unit of money is %d millionths, must be a power of ten from 1 to %d", o.moneyUnit, MicroUnits)
	}
	if len(o.models) > MaxModels {
		bad("models", "there are %d models, must be at most %d", len(o.models), MaxModels)
		return
	}
	seen := make(map[string]bool, len(o.models))
	for i := range o.models {
		m, field := &o.models[i], fmt.Sprintf("models.%d", i)
		star := strings.IndexByte(m.Name, '*')
		switch {
		case m.Name == "" || len(m.Name) > MaxValue:
			bad(field, "the model %s has a name of %d bytes, must have 1 to %d", Quote(m.Name), len(m.Name), MaxValue)
		case star >= 0 && star < len(m.Name)-1:
			bad(field, "the model %s has a star that is not its last character", Quote(m.Name))
		case seen[m.Name]:
			bad(field, "the model %s is there twice; keep one", Quote(m.Name))
		case m.Is != "" && (star >= 0 || *m != Model{Name: m.Name, Is: m.Is}):
			bad(field, "the model %s stands for another one, so it has a whole name and nothing else", Quote(m.Name))
		}
		seen[m.Name] = true
		for _, n := range []struct {
			name        string
			value, most int64
		}{
			{"input", m.Input, MaxPrice},
			{"cached_input", m.CachedInput, MaxPrice},
			{"cache_write", m.CacheWrite, MaxPrice},
			{"output", m.Output, MaxPrice},
			{"max_input", m.MaxInput, headgate.MaxCount},
			{"image", m.Image, headgate.MaxCount},
			{"max_output", m.MaxOutput, headgate.MaxCount},
		} {
			if n.value < 0 || n.value > n.most {
				bad(field, "the model %s: %s is %d, must be 0 to %d", Quote(m.Name), n.name, n.value, n.most)
			}
		}
		if m.OutputTiers != nil {
			m.OutputTiers.check(func(format string, args ...any) {
				bad(field, "the model %s: max_output: %s", Quote(m.Name), fmt.Sprintf(format, args...))
			})
		}
	}
	for i := range o.models {
		if m := &o.models[i]; m.Is != "" && slices.ContainsFunc(o.models, func(n Model) bool { return n.Name == m.Is && n.Is != "" }) {
			bad(fmt.Sprintf("models.%d", i), "the model %s stands for %s, which stands for another one; name that one", Quote(m.Name), Quote(m.Is))
		}
	}
}

func (o *OutputTiers) check(bad func(format string, args ...any)) {
	if problem := checkEntryName(o.Entry); problem != "" {
		bad("%s", problem)
	}
	if n := len(o.Values); n < 1 || n > MaxTiers {
		bad("there are numbers for %d values of %q, must be 1 to %d", n, o.Entry, MaxTiers)
	}
	for value, n := range o.Values {
		if value == "" || len(value) > MaxValue || n < 1 || n > headgate.MaxCount {
			bad("the value %s has the number %d, must be 1 to %d for a value of 1 to %d bytes", Quote(value), n, headgate.MaxCount, MaxValue)
		}
	}
}

// Models are the models that the set knows. They are shared and must not be changed.
func (s *Set) Models() []Model { return s.options.models }

// MoneyUnit is the unit in which money is counted, in millionths of the currency.
func (s *Set) MoneyUnit() int64 { return s.options.moneyUnit }

// Model returns what is known of the model of that name or, if the name stands for another model, of
// that one. Its Name is then the name that the provider knows, and without "*". A model of which
// nothing is known has only a Name.
func (s *Set) Model(name string) Model {
	m := s.longest(name)
	if m.Is != "" {
		name = m.Is
		m = s.longest(name)
	}
	m.Name = name
	return m
}

// ModelFor is Model for a request: its MaxOutput is the one that the request has by its entries.
func (s *Set) ModelFor(name string, d Descriptor) Model {
	m := s.Model(name)
	if m.OutputTiers != nil {
		value, _ := s.known(d).Get(m.OutputTiers.Entry)
		if most, ok := m.OutputTiers.Values[value]; ok {
			m.MaxOutput = most
		}
	}
	return m
}

// longest returns the model with the longest name that matches.
func (s *Set) longest(name string) (found Model) {
	length := -1
	if i, ok := s.modelNames[name]; ok {
		return s.options.models[i]
	}
	for _, i := range s.modelPrefixes {
		m := &s.options.models[i]
		if prefix := m.Name[:len(m.Name)-1]; len(prefix) > length && strings.HasPrefix(name, prefix) {
			found, length = *m, len(prefix)
		}
	}
	return found
}

// compileModels prepares the search for models.
func (s *Set) compileModels() {
	s.modelNames = make(map[string]int32)
	for i := range s.options.models {
		if name := s.options.models[i].Name; strings.HasSuffix(name, "*") {
			s.modelPrefixes = append(s.modelPrefixes, int32(i))
		} else {
			s.modelNames[name] = int32(i)
		}
	}
}

// Counts reports whether some rule of the set counts what models use. If not, nobody has to know it.
func (s *Set) Counts() bool { return s.counts }

// units returns how many units a request has under what a rule counts, before the rule's factor. A
// request that is no call of a model has none under a rule that counts what models use. The problem
// says why the number is not known, and is empty otherwise.
func (s *Set) units(counted Counted, cost int64, u *Usage) (units int64, problem string) {
	if counted == CountRequests {
		return max(cost, 1), ""
	}
	if u == nil {
		return 0, ""
	}
	for _, n := range [...]int64{u.Input, u.CachedInput, u.CacheWrite, u.Output} {
		if n < 0 || n > headgate.MaxCount {
			return 0, fmt.Sprintf("the usage has %d tokens, must be 0 to %d", n, headgate.MaxCount)
		}
	}
	if u.CachedInput+u.CacheWrite > u.Input {
		return 0, fmt.Sprintf("the usage has %d tokens of input, and %d of them from or for the cache", u.Input, u.CachedInput+u.CacheWrite)
	}
	switch counted {
	case CountInputTokens:
		units = u.Input
	case CountOutputTokens:
		units = u.Output
	case CountTokens:
		units = u.Input + u.Output
	case CountMoney:
		m := s.Model(u.Model)
		if !m.Priced {
			return 0, fmt.Sprintf("the model %s has no price; give it one under models, or all others one as \"*\"", Quote(m.Name))
		}
		units = m.price(u, s.MoneyUnit())
	}
	if units > headgate.MaxCount {
		return 0, fmt.Sprintf("the request costs %d, must be at most %d", units, headgate.MaxCount)
	}
	return units, ""
}

// price returns what the usage costs in units of so many millionths, rounded up, and more than
// headgate.MaxCount if it is more. It is exact: a price of millionths for a million tokens makes one
// token cost whole billionths of a thousandth, which are added up in 128 bits.
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
		return headgate.MaxCount + 1
	}
	units, rest := bits.Div64(high, low, divisor)
	if rest > 0 {
		units++
	}
	return int64(min(units, headgate.MaxCount+1))
}

// DecideUsage is [Set.Decide] for a call to a language model: rules that count tokens or money bind
// it at what u says. Nil is a request of which that is not known, so that these rules do not bind
// it, as they do not bind a call that costs nothing under them. The error may also say that the
// model has no price.
func (s *Set) DecideUsage(d Descriptor, cost int64, u *Usage, dst []headgate.Check) (Outcome, error) {
	out, err := s.bind(d, cost, u, dst, true)
	if err == nil {
		s.dropReplaced(&out, len(dst))
	}
	return out, err
}
