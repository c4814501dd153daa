package nested

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Has reports whether the tree has the domain.
func (t *Tree) Has(domain string) bool { return t.domains[domain] != nil }

// Find returns the leaf that binds the descriptor, and the key under which it is counted. The leaf
// is nil if no limit binds the descriptor, or if it has more than policy.MaxEntries entries. An
// entry without a value is allowed: it leads to a node without a value, or to one whose stars match
// the empty text. Find allocates only for keys that have several values, are hashed, or are too
// long.
func (t *Tree) Find(domain string, d policy.Descriptor) (leaf *Leaf, key string) {
	l := t.domains[domain]
	if len(d) == 0 || len(d) > policy.MaxEntries {
		return nil, ""
	}
	var space [policy.MaxEntries]part
	parts := space[:0]
	var at *node
	for i := range d {
		if l == nil {
			return nil, ""
		}
		if at = l.find(&d[i]); at == nil {
			return nil, ""
		}
		if at.counted {
			parts = append(parts, part{&d[i], at.named})
		}
		l = at.nodes
	}
	if at.leaf == nil {
		return nil, ""
	}
	return at.leaf, join(t.set, parts)
}

// Decide is [policy.Set.Decide] for one ordered descriptor. The domain is the value of the first
// entry named DomainEntry, at any place; the other entries are used in their order. No limit
// replaces another, because there is only one descriptor. The error is a [*headgate.InvalidError]
// if there is no domain or the cost is out of bounds.
func (t *Tree) Decide(d policy.Descriptor, cost int64, dst []headgate.Check) (policy.Outcome, error) {
	out := policy.Outcome{Checks: dst}
	var space [policy.MaxEntries]policy.Entry
	domain, entries, err := ordered(d, cost, space[:0])
	if err != nil {
		return out, err
	}
	leaf, key := t.Find(domain, entries)
	switch {
	case leaf == nil:
	case leaf.Unlimited:
		out.Allowed = leaf.Listed
	case leaf.Denies() && (leaf.Shadow || leaf.Quota):
	case leaf.Denies():
		out.Denied = leaf.Listed
	default:
		out.Checks = append(dst, leaf.check(key, cost))
	}
	return out, nil
}

// check returns the check of a leaf that counts: neither Unlimited nor Denies.
func (l *Leaf) check(key string, cost int64) headgate.Check {
	return headgate.Check{Rule: l.Rule, Key: key, Cost: max(cost, 1), Shadow: l.Shadow || l.Quota}
}

// ordered separates the domain from the other entries of a descriptor, and appends those to dst.
// The error is a [*headgate.InvalidError] if there is no domain or the cost is out of bounds.
func ordered(d policy.Descriptor, cost int64, dst policy.Descriptor) (domain string, entries policy.Descriptor, err error) {
	if cost < 0 || cost > headgate.MaxCount {
		return "", nil, headgate.Invalid("request", "cost", "the cost is %d, must be 1 to %d", cost, headgate.MaxCount)
	}
	found := false
	for _, e := range d {
		if e.Name == DomainEntry && !found {
			domain, found = e.Value, true
			continue
		}
		dst = append(dst, e)
	}
	if domain == "" {
		return "", nil, headgate.Invalid("request", DomainEntry, "it has no entry %q: the policy is a configuration of envoyproxy/ratelimit, which looks at the entries of a domain in their order", DomainEntry)
	}
	return domain, dst, nil
}

// find returns the node that the entry leads to: the one with the entry's own value, else the first
// one whose stars match the entry, else the one without a value. It returns nil if there is none.
func (l *level) find(e *policy.Entry) *node {
	if e.Value != "" {
		if n := l.exact[entry{e.Name, e.Value}]; n != nil {
			return n
		}
	}
	for _, s := range l.stars {
		if s.matches(e) {
			return s.node
		}
	}
	return l.exact[entry{name: e.Name}]
}

// JoinKey joins the values of all entries to a key, in their order, in the way in which [Tree.Find]
// joins the values that the configuration leaves open.
func JoinKey(set *policy.Set, d policy.Descriptor) string {
	parts := make([]part, len(d))
	for i := range d {
		parts[i].entry = &d[i]
	}
	return join(set, parts)
}

// part is an entry whose value is part of a key. Its name may be part of the key, too.
type part struct {
	entry *policy.Entry
	named bool
}

func (p part) text(set *policy.Set) string {
	value := p.entry.Value
	if set.Secret(p.entry.Name) {
		value = set.Hash(p.entry.Name, value)
	}
	if p.named {
		value = p.entry.Name + "=" + value
	}
	return value
}

// shortened is the first byte of the replacement of a key that is too long for a store. A key that
// begins with this byte is replaced as well, as in package policy. Otherwise a client could choose
// values whose key is the replacement of another key.
const shortened = "\x00"

// join joins the parts to a key, in the way in which package policy makes the key of a rule that
// counts by several entries.
func join(set *policy.Set, parts []part) string {
	if len(parts) == 0 {
		return ""
	}
	first := parts[0].text(set)
	if len(parts) == 1 && len(first) <= headgate.MaxKey && !strings.HasPrefix(first, shortened) {
		return first
	}
	var space [192]byte
	key := space[:0]
	if len(parts) == 1 {
		key = append(key, first...)
	} else {
		key = appendEscaped(key, first)
	}
	for _, p := range parts[1:] {
		key = appendEscaped(append(key, '|'), p.text(set))
	}
	if len(key) > headgate.MaxKey || len(key) > 0 && key[0] == shortened[0] {
		sum := sha256.Sum256(key)
		return shortened + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return string(key)
}

func appendEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		if value[i] == '|' || value[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, value[i])
	}
	return dst
}

// maxMeasure is the length of the longest name that [Tree.Measure] returns, in bytes.
const maxMeasure = 256

// Measure returns the name under which requests with the descriptor are to be measured. Call it for
// a descriptor whose leaf has Measured set. The name is the path to the limit, with the values that
// the configuration asks for (value_to_metric) or with all values (detailed_metric). Secret values
// are replaced by their hashes. If no limit binds the descriptor, the name is the domain.
//
// Callers choose the values and thus the names, so whatever stores the names must bound their
// number.
func (t *Tree) Measure(domain string, d policy.Descriptor) string {
	leaf, _ := t.Find(domain, d)
	l := t.domains[domain]
	if leaf == nil || l == nil {
		return domain
	}
	var b strings.Builder
	b.WriteString(domain)
	for i := range d {
		e := &d[i]
		n := l.find(e)
		l = n.nodes
		open := leaf.Detailed || n.valued
		name, value := e.Name, ""
		switch {
		case n.byName && (n.shared || !open):
			name = n.pattern // All names and values that match count as one.
		case n.shared || n.pattern != "" && !open:
			value = n.pattern
		case n.exact || open:
			value = e.Value
			if value != "" && t.set.Secret(name) {
				value = "#" + t.set.Hash(name, value)
			}
		}
		b.WriteString("." + name)
		if value != "" {
			b.WriteString("_" + value)
		}
	}
	name := strings.ToValidUTF8(b.String(), "_")
	if len(name) > maxMeasure {
		mark := "~" + digest(name)
		name = strings.ToValidUTF8(name[:maxMeasure-len(mark)], "") + mark
	}
	return name
}
