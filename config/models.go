package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// modelMapping is one entry of models.
func modelMapping() value[models.Model] {
	type t = models.Model
	tokens := wholeNumber(1, models.MaxTokens)
	price := func(name, about string, at func(*t) *int64) field[t] {
		return to(name, about, decimal(models.MaxPrice), func(into *t, _ *node, v int64) { *at(into) = v })
	}
	v := object("a model", []field[t]{
		required(to("model", "its name, or the beginning of several names followed by a star; the longest that matches counts", filledText(), func(into *t, _ *node, v string) { into.Name = v })),
		to("is", "the model that requests for this name are sent to; prices and bounds are then those of that model", filledText(), func(into *t, _ *node, v string) { into.Is = v }),
		price("input", "price of a million tokens of input, such as 2.50", func(into *t) *int64 { return &into.Input }),
		price("cached_input", "price of a million tokens of input from the provider's cache. Default: that of input", func(into *t) *int64 { return &into.CachedInput }),
		price("cache_write", "price of a million tokens that the provider puts into its cache. Default: that of input", func(into *t) *int64 { return &into.CacheWrite }),
		price("output", "price of a million tokens of output, including reasoning", func(into *t) *int64 { return &into.Output }),
		to("max_input", "the largest input that the model accepts, in tokens. It is reserved for requests whose size in tokens cannot be estimated", tokens, func(into *t, _ *node, v int64) { into.MaxInput = v }),
		to("max_output", "the largest output that a request may ask for, in tokens, and the default of requests that do not say it; by the value of an entry, as { tier: { pro: 8000, \"*\": 1000 } }", numbersValue(models.MaxTokens), func(into *t, _ *node, v numbers) {
			if into.MaxOutput = v.number; v.entry != "" {
				into.OutputTiers = &models.OutputTiers{Entry: v.entry, Values: v.values}
			}
		}),
		to("image", "how many tokens an image has at most", tokens, func(into *t, _ *node, v int64) { into.Image = v }),
	})
	return value[t]{v.schema, func(r *reader, name string, n *node) (t, bool) {
		m, ok := v.read(r, name, n)
		if m.Priced = n.has("input") && n.has("output"); ok && n.has("input") != n.has("output") {
			r.add(n.at, "a model has prices for input and for output, or none; give both")
			return m, false
		}
		return m, ok
	}}
}

// decimal is a number with at most six digits behind the point, in millionths.
func decimal(most int64) value[int64] {
	s := schema{"type": "number", "minimum": 0, "maximum": most / models.MicroUnits}
	return value[int64]{s, func(r *reader, name string, n *node) (int64, bool) {
		before, behind, _ := strings.Cut(n.text, ".")
		micros, err := strconv.ParseUint(before+behind+strings.Repeat("0", max(0, 6-len(behind))), 10, 63)
		if n.kind != whole && n.kind != other || before == "" || len(behind) > 6 || err != nil || int64(micros) > most {
			r.add(n.at, "%s is %s, must be a number from 0 to %d with at most 6 digits behind the point, such as 2.50", name, describe(n), most/models.MicroUnits)
			return 0, false
		}
		return int64(micros), true
	}}
}

// formatDecimal writes what decimal reads.
func formatDecimal(micros int64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%06d", micros/models.MicroUnits, micros%models.MicroUnits), "0"), ".")
}

// models writes what is known of models.
func (w *writer) models(set *policy.Set) {
	if unit := set.Models().Unit(); unit != 1 {
		w.line(0, "money_unit: %s", formatDecimal(unit))
	}
	for i, m := range set.Models().All() {
		if i == 0 {
			w.line(0, "models:")
		}
		w.line(1, "- model: %s", quote(m.Name))
		if m.Is != "" {
			w.line(2, "is: %s", quote(m.Is))
		}
		for _, price := range []struct {
			name  string
			value int64
			given bool
		}{{"input", m.Input, m.Priced}, {"cached_input", m.CachedInput, m.CachedInput > 0}, {"cache_write", m.CacheWrite, m.CacheWrite > 0}, {"output", m.Output, m.Priced}} {
			if price.given {
				w.line(2, "%s: %s", price.name, formatDecimal(price.value))
			}
		}
		for _, tokens := range []struct {
			name  string
			value int64
		}{{"max_input", m.MaxInput}, {"image", m.Image}} {
			if tokens.value > 0 {
				w.line(2, "%s: %d", tokens.name, tokens.value)
			}
		}
		most := numbers{number: m.MaxOutput}
		if m.OutputTiers != nil {
			most.entry, most.values = m.OutputTiers.Entry, m.OutputTiers.Values
		}
		if most.number > 0 || most.entry != "" {
			w.line(2, "max_output: %s", w.numbers(most))
		}
	}
}
