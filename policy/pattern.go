package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// pattern is one value of a condition: a whole value, the beginning of a value, a network, or the
// hash of a secret. Networks have their text, too.
type pattern struct {
	text    string
	prefix  bool
	hash    bool
	network netip.Prefix
}

// patterns returns all values of the condition.
func (c *Condition) patterns() []pattern {
	p := make([]pattern, 0, c.Size())
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

// few is how many values a message names, if there are many.
const few = 3

// Describe lists the first few values of the condition for a message, each in quotes, and says how
// many more there are. Values of a secret entry are shown as hashes.
func (c *Condition) Describe(secret bool) string {
	// A condition may have ten thousand values, so that the others are not looked at.
	head := *c
	head.Equals, head.Prefixes = c.Equals[:min(few, len(c.Equals))], c.Prefixes[:min(few, len(c.Prefixes))]
	head.Networks, head.Hashes = c.Networks[:min(few, len(c.Networks))], c.Hashes[:min(few, len(c.Hashes))]
	patterns := head.patterns()
	var texts []string
	for _, p := range patterns[:min(few, len(patterns))] {
		text := fmt.Sprintf("%q", p.text)
		switch {
		case secret && !p.hash:
			text = "(a secret)"
		case p.prefix:
			text = fmt.Sprintf("%q", p.text+"*")
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, ", ")
	if more := c.Size() - len(texts); more > 0 {
		text = fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}
