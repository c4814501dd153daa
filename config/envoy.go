package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
)

// EnvoyFiles are the files of a directory that hold a configuration of
// envoyproxy/ratelimit: those whose names end in .yaml or .yml and do not begin
// with a dot, in their order.
func EnvoyFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("headgate: %w", err)
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		if extension := filepath.Ext(name); !strings.HasPrefix(name, ".") && (extension == ".yaml" || extension == ".yml") {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

// ReadEnvoy reads the configuration of envoyproxy/ratelimit in a directory, a domain in each document
// of each file; those of one domain are read as one. The Set of what is loaded has a direct rule for
// each limit, and Nested leads to them. If a file is wrong, the error is an [*Error] with the mistakes
// of all files; if one cannot be read, it wraps that of package os.
func ReadEnvoy(dir string, opts ...policy.Option) (Loaded, error) {
	var loaded Loaded
	domains, err := readEnvoy(dir, &loaded)
	if err != nil {
		return loaded, err
	}
	loaded.Nested, loaded.Set, err = nested.New(domains, opts...)
	if err != nil {
		return loaded, envoyError(dir, err)
	}
	return loaded, nil
}

// ConvertEnvoy reads the configuration of envoyproxy/ratelimit in a directory and
// writes the same limits as a policy file, for which [nested.Flatten] makes the
// descriptors. What could not be written is in lost; its Lines are those of what
// was read. Errors are those of [ReadEnvoy] and [Format].
func ConvertEnvoy(dir string, opts ...policy.Option) (text []byte, lost []Mistake, err error) {
	domains, err := readEnvoy(dir, new(Loaded))
	if err != nil {
		return nil, nil, err
	}
	return convertEnvoy(dir, domains, opts)
}

func convertEnvoy(dir string, domains []nested.Domain, opts []policy.Option) (text []byte, lost []Mistake, err error) {
	facts, err := nested.Rules(domains, opts...)
	if err != nil {
		return nil, nil, envoyError(dir, err)
	}
	opts = append(slices.Clone(opts), policy.Allowed(facts.Allow...), policy.Denied(facts.Deny...))
	set, err := policy.New(facts.Rules, opts...)
	if err != nil {
		return nil, nil, envoyError(dir, err)
	}
	for i := range facts.Lost {
		lost = append(lost, placedAt(dir, &facts.Lost[i]))
	}
	text, err = Format(set)
	return text, lost, err
}

// placedAt is a mistake at the position of its node.
func placedAt(dir string, m *policy.Mistake) Mistake {
	return Mistake{cmp.Or(m.Pos.File, dir), m.Pos.Line, m.Pos.Column, m.Text}
}

func envoyError(dir string, err error) error {
	var found *policy.Error
	if !errors.As(err, &found) {
		return err
	}
	all := mistakes{file: dir}
	for i := range found.Mistakes {
		all.keep(placedAt(dir, &found.Mistakes[i]))
	}
	return all.err()
}

// readEnvoy reads all files of the directory. It notes their names and their
// hash.
func readEnvoy(dir string, loaded *Loaded) ([]nested.Domain, error) {
	files, err := EnvoyFiles(dir)
	if err != nil {
		return nil, err
	}
	loaded.Files = files
	all := mistakes{file: dir}
	if len(files) == 0 {
		all.add(place{}, "there is no file whose name ends in .yaml")
	}
	sum := sha256.New()
	var domains []nested.Domain
	for _, name := range files {
		// A pipe would keep whoever reads it waiting.
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			all.keep(Mistake{name, 1, 1, "this is not a regular file"})
			continue
		}
		data, err := readFile(name, MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("headgate: %w", err)
		}
		addPart(sum, data)
		m := mistakes{file: name}
		if all, ok := parseEnvoy(&m, data); ok {
			domains = append(domains, all...)
		}
		if found, ok := errors.AsType[*Error](m.err()); ok {
			for _, one := range found.Mistakes {
				all.keep(one)
			}
		}
	}
	loaded.Hash = hex.EncodeToString(sum.Sum(nil))
	return domains, all.err()
}

// envoyDepth is how deeply values may stand in each other in a configuration of
// envoyproxy/ratelimit: enough for thirty nested descriptors, which is as many
// entries as a descriptor may have.
const envoyDepth = 64

// envoyDocuments is how many documents a file may have.
const envoyDocuments = 1000

// parseEnvoy reads one file, a domain in each of its documents, and reports whether it has no mistake.
func parseEnvoy(m *mistakes, data []byte) (domains []nested.Domain, ok bool) {
	for _, root := range parseAll(m, data, envoyDepth, envoyDocuments) {
		d, _ := envoyDomain(m.file).read(&reader{m}, "the file", root)
		d.Pos = root.at.in(m.file)
		domains = append(domains, d)
	}
	return domains, m.list == nil
}

// envoyDomain has the fields of a file.
func envoyDomain(file string) value[nested.Domain] {
	return object("a configuration", []field[nested.Domain]{
		// Envoy Gateway's name for the whole. Nobody else reads it.
		to("name", "a name for people", orNothing(scalarText()), func(*nested.Domain, *node, string) {}),
		required(to("domain", "the domain that requests name", someText(), func(into *nested.Domain, _ *node, v string) { into.Name = v })),
		to("descriptors", "the descriptors, and the limits of those that end here", envoyNodes(file),
			func(into *nested.Domain, _ *node, v []nested.Node) { into.Nodes = v }),
	})
}

// envoyNodes is a list of descriptors, each of which may have a list again.
func envoyNodes(file string) value[[]nested.Node] {
	var one value[nested.Node]
	list := listOf(value[nested.Node]{read: func(r *reader, name string, n *node) (nested.Node, bool) { return one.read(r, name, n) }}, 0, maxItems)
	nodes := orNothing(value[[]nested.Node]{list.schema, func(r *reader, name string, n *node) ([]nested.Node, bool) {
		entries, ok := list.read(r, name, n)
		var all []nested.Node
		for i := range entries {
			e := &entries[i]
			e.value.Pos = e.at.in(file)
			all = append(all, e.value)
		}
		return all, ok
	}})
	fields := object("a descriptor", []field[nested.Node]{
		required(to("key", "the name of the entry", someText(), func(into *nested.Node, _ *node, v string) { into.Key = v })),
		to("value", "its value, in which stars stand for any text; any if left out", orNothing(scalarText()),
			func(into *nested.Node, _ *node, v string) { into.Value = v }),
		to("rate_limit", "the limit of descriptors that end with this entry", orNothing(envoyLimit()),
			func(into *nested.Node, _ *node, v *nested.Limit) { into.Limit = v }),
		to("descriptors", "the descriptors of the next entry", nodes,
			func(into *nested.Node, _ *node, v []nested.Node) { into.Nodes = v }),
		to("shadow_mode", "count and never deny", yesOrNo(), func(into *nested.Node, _ *node, v bool) { into.Shadow = v }),
		to("quota_mode", "count and never deny, and tell callers", yesOrNo(), func(into *nested.Node, _ *node, v bool) { into.Quota = v }),
		to("share_threshold", "all values that the star stands for share one counter", yesOrNo(),
			func(into *nested.Node, _ *node, v bool) { into.Share = v }),
		to("detailed_metric", "measure requests by all of their values", yesOrNo(), func(into *nested.Node, _ *node, v bool) { into.Detailed = v }),
		to("metadata", "what is told of descriptors that the limit admits", envoyMetadata(),
			func(into *nested.Node, _ *node, v map[string]any) { into.Metadata = v }),
		to("value_to_metric", "measure requests by this value", yesOrNo(), func(into *nested.Node, _ *node, v bool) { into.ValueToMetric = v }),
	})
	one = value[nested.Node]{fields.schema, func(r *reader, name string, n *node) (nested.Node, bool) {
		v, ok := fields.read(r, name, n)
		starred := strings.Contains(v.Key+v.Value, nested.Star)
		if at, _ := n.field("share_threshold"); ok && v.Share && !starred {
			r.add(at.at, "share_threshold is true, but neither the value nor the key has a star; it is for what a star stands for")
		}
		return v, ok
	}}
	return nodes
}

// envoyUnits are the units of time. A month is 30 days there and a year 365.
func envoyUnits() (names []string, lengths []time.Duration) {
	const day = 24 * time.Hour
	return []string{"second", "minute", "hour", "day", "week", "month", "year"},
		[]time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}
}

func envoyUnit() value[time.Duration] {
	names, lengths := envoyUnits()
	choice := oneOf(names...)
	return value[time.Duration]{choice.schema, func(r *reader, name string, n *node) (time.Duration, bool) {
		lower := *n
		lower.text = strings.ToLower(n.text)
		unit, ok := choice.read(r, name, &lower)
		if !ok {
			return 0, false
		}
		return lengths[slices.Index(names, unit)], true
	}}
}

// envoyLimitText is a limit as it was read.
type envoyLimitText struct {
	limit      nested.Limit
	unit       time.Duration
	multiplier int64
}

func envoyLimit() value[*nested.Limit] {
	replaced := object("an entry of replaces", []field[string]{
		required(to("name", "the name of the limit that is replaced", someText(), func(into *string, _ *node, v string) { *into = v })),
	})
	v := object("a rate limit", []field[envoyLimitText]{
		to("unit", "the length of the windows", orNothing(envoyUnit()), func(into *envoyLimitText, _ *node, v time.Duration) { into.unit = v }),
		to("unit_multiplier", "how many units a window has; one if left out", orNothing(wholeNumber(1, math.MaxUint32)),
			func(into *envoyLimitText, _ *node, v int64) { into.multiplier = v }),
		to("requests_per_unit", "how many requests pass in each window", orNothing(wholeNumber(0, math.MaxUint32)),
			func(into *envoyLimitText, _ *node, v int64) { into.limit.Count = v }),
		to("unlimited", "no limit at all", yesOrNo(), func(into *envoyLimitText, _ *node, v bool) { into.limit.Unlimited = v }),
		to("name", "what other limits replace this one by", orNothing(scalarText()), func(into *envoyLimitText, _ *node, v string) { into.limit.Name = v }),
		to("replaces", "limits that do not bind a request that this one binds", orNothing(listOf(replaced, 0, maxItems)),
			func(into *envoyLimitText, _ *node, v []entry[string]) {
				for i := range v {
					if v[i].good {
						into.limit.Replaces = append(into.limit.Replaces, v[i].value)
					}
				}
			}),
	})
	return value[*nested.Limit]{v.schema, func(r *reader, name string, n *node) (*nested.Limit, bool) {
		before := r.count()
		t, ok := v.read(r, name, n)
		l := &t.limit
		if !ok || r.count() != before {
			return l, ok
		}
		at := func(field string) place {
			if f, given := n.field(field); given {
				return f.at
			}
			return n.at
		}
		switch {
		case l.Unlimited && t.unit != 0:
			r.add(at("unit"), "there is a unit, but the limit is unlimited; leave one of them out")
		case l.Unlimited:
		case t.unit == 0:
			r.add(n.at, "a rate limit must have a unit, such as minute, or be unlimited")
		case t.multiplier > int64(headgate.MaxPeriod/t.unit):
			r.add(at("unit_multiplier"), "a window of %d times the unit is longer than %v", t.multiplier, headgate.MaxPeriod)
		default:
			l.Period = t.unit * time.Duration(max(t.multiplier, 1))
		}
		if slices.Contains(l.Replaces, l.Name) {
			r.add(at("replaces"), "the limit %q would replace itself", l.Name)
		}
		return l, true
	}}
}

// envoyMetadata is a mapping with values of any kind, as JSON has them.
func envoyMetadata() value[map[string]any] {
	return orNothing(value[map[string]any]{schema{"type": "object"}, func(r *reader, name string, n *node) (map[string]any, bool) {
		if n.kind != mapping {
			r.add(n.at, "%s is %s, must be a mapping, such as { name: gold }", name, describe(n))
			return nil, false
		}
		fields, _ := n.plain().(map[string]any)
		return fields, true
	}})
}

// plain is the value as package encoding/json would read it. The last of several fields of
// one name counts.
func (n *node) plain() any {
	switch n.kind {
	case empty:
		return nil
	case list:
		all := make([]any, len(n.items))
		for i, item := range n.items {
			all[i] = item.plain()
		}
		return all
	case mapping:
		all := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			all[f.name] = f.value.plain()
		}
		return all
	case whole, other:
		if truth, err := strconv.ParseBool(n.text); err == nil && n.kind == other {
			return truth
		}
		if number, err := strconv.ParseFloat(n.text, 64); err == nil && !math.IsInf(number, 0) && !math.IsNaN(number) {
			return number
		}
	}
	return n.text
}

// orNothing is a value that may be there and empty.
func orNothing[T any](v value[T]) value[T] {
	return value[T]{v.schema, func(r *reader, name string, n *node) (T, bool) {
		if n.kind == empty {
			var zero T
			return zero, true
		}
		return v.read(r, name, n)
	}}
}

// filled1 is a scalar that is not empty.
func someText() value[string] {
	v := scalarText()
	return value[string]{v.schema, func(r *reader, name string, n *node) (string, bool) {
		x, ok := v.read(r, name, n)
		if ok && x == "" {
			r.add(n.at, "%s is empty", name)
		}
		return x, ok && x != ""
	}}
}

// yesOrNo is true or false, in any of the ways that YAML 1.1 writes them.
func yesOrNo() value[bool] {
	return orNothing(value[bool]{schema{"type": "boolean"}, func(r *reader, name string, n *node) (bool, bool) {
		switch strings.ToLower(n.text) {
		case "true", "yes", "on", "y":
			return true, n.kind != whole
		case "false", "no", "off", "n":
			return false, n.kind != whole
		}
		r.add(n.at, "%s is %s, must be true or false", name, describe(n))
		return false, false
	}})
}
