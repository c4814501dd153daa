package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// pattern is what one value of a condition asks for: a whole value, the
// beginning of some, a network or the hash of a secret.
type pattern struct {
	text    string
	prefix  bool
	hash    bool
	network netip.Prefix
}

func (c *Condition) patterns() []pattern {
	p := make([]pattern, 0, c.size())
	for _, v := range c.Equals {
		if c.Entry == addressEntry {
			v = spelled(v)
		}
		p = append(p, pattern{text: v})
	}
	for _, v := range c.Prefixes {
		p = append(p, pattern{text: v, prefix: true})
	}
	for _, n := range c.Networks {
		p = append(p, pattern{text: n.String(), network: n})
	}
	for _, h := range c.Hashes {
		p = append(p, pattern{text: h, hash: true})
	}
	return p
}

// whole reports whether the pattern is a value.
func (p pattern) whole() bool { return !p.prefix && !p.hash && !p.network.IsValid() }

// covers reports whether every value that meets q is known to meet p.
func (p pattern) covers(q pattern) bool {
	switch {
	case p.hash || q.hash:
		return p.hash && q.hash && p.text == q.text
	case p.network.IsValid() && q.network.IsValid():
		return p.network.Bits() <= q.network.Bits() && p.network.Contains(q.network.Addr())
	case p.network.IsValid():
		a, err := netip.ParseAddr(q.text)
		return q.whole() && err == nil && p.network.Contains(a.Unmap().WithZone(""))
	case p.prefix:
		return !q.network.IsValid() && strings.HasPrefix(q.text, p.text)
	}
	return q.whole() && p.text == q.text
}

// unclear reports whether it cannot be told from the patterns whether a value
// meets both.
func (p pattern) unclear(q pattern) bool {
	return p.hash != q.hash || p.prefix && q.network.IsValid() || q.prefix && p.network.IsValid()
}

func (p pattern) String() string {
	if p.prefix {
		return p.text + "*"
	}
	return p.text
}

func covered(p pattern, by []pattern) bool {
	return slices.ContainsFunc(by, func(q pattern) bool { return q.covers(p) })
}

// intersect has the patterns of a and b that the other one leaves, or may leave.
func intersect(a, b []pattern) []pattern {
	var both []pattern
	left := func(p pattern, by []pattern) bool {
		return slices.ContainsFunc(by, func(q pattern) bool { return q.covers(p) || q.unclear(p) })
	}
	for _, p := range a {
		if left(p, b) {
			both = append(both, p)
		}
	}
	for _, q := range b {
		if left(q, a) && !slices.Contains(both, q) {
			both = append(both, q)
		}
	}
	return both
}

// some lists the first few texts.
func some(texts []string) string {
	const few = 3
	if len(texts) <= few {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:few], ", "), len(texts)-few)
}

// quoted quotes the patterns, unless they are secret.
func quoted(patterns []pattern, secret bool) []string {
	texts := make([]string, len(patterns))
	for i, p := range patterns {
		if texts[i] = fmt.Sprintf("%q", p); secret && !p.hash {
			texts[i] = "(a secret)"
		}
	}
	return texts
}
