package policy

import (
	"fmt"
	"net/netip"
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

func (p pattern) String() string {
	if p.prefix {
		return p.text + "*"
	}
	return p.text
}

// few is how many of many values a message names.
const few = 3

// some lists the first few texts.
func some(texts []string) string { return someOf(texts[:min(few, len(texts))], len(texts)) }

// someOf lists the first few texts of so many.
func someOf(first []string, all int) string {
	text := strings.Join(first, ", ")
	if all > len(first) {
		text = fmt.Sprintf("%s and %d more", text, all-len(first))
	}
	return text
}

// some lists the first few values, quoted unless they are secret, and does not look at
// the others.
func (c *Condition) some(secret bool) string {
	head := *c
	head.Equals, head.Prefixes = c.Equals[:min(few, len(c.Equals))], c.Prefixes[:min(few, len(c.Prefixes))]
	head.Networks, head.Hashes = c.Networks[:min(few, len(c.Networks))], c.Hashes[:min(few, len(c.Hashes))]
	patterns := head.patterns()
	var texts []string
	for _, p := range patterns[:min(few, len(patterns))] {
		text := fmt.Sprintf("%q", p)
		if secret && !p.hash {
			text = "(a secret)"
		}
		texts = append(texts, text)
	}
	return someOf(texts, c.size())
}
