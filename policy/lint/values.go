package lint

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/policy"
)

// pattern is one of the values that a condition asks for.
type pattern struct {
	kind    kinds
	text    string       // of all kinds but networkKind
	network netip.Prefix // of networkKind
}

// kinds is a set of kinds of patterns.
type kinds uint8

const (
	wholeKind   kinds = 1 << iota // a whole value
	prefixKind                    // the beginning of a value
	networkKind                   // a network that holds an address
	hashKind                      // the hash of a secret value
)

// unclear returns the kinds of patterns of which it cannot be told whether a value meets
// one of them and one of k: a hash may be that of any value, and the spelling of an address
// says nothing of its network.
func (k kinds) unclear() kinds {
	var with kinds
	if k&hashKind != 0 {
		with |= wholeKind | prefixKind | networkKind
	}
	if k&^hashKind != 0 {
		with |= hashKind
	}
	if k&prefixKind != 0 {
		with |= networkKind
	}
	if k&networkKind != 0 {
		with |= prefixKind
	}
	return with
}

// values are the patterns of a condition, which holds for a value that meets one of them.
// A condition may have ten thousand, so that they are looked up and not looked through.
type values struct {
	list    []pattern
	known   map[pattern]bool // those in list
	kinds   kinds            // of those in list
	lengths []int            // of the prefixes, each once
	bits    []int            // of the networks, each once
}

func newValues(c *policy.Condition) *values {
	v := &values{list: make([]pattern, 0, c.Size())}
	for _, text := range c.Equals {
		if c.Entry == "ip" {
			if a, ok := address(text); ok {
				text = a.String()
			}
		}
		v.list = append(v.list, pattern{kind: wholeKind, text: text})
	}
	for _, text := range c.Prefixes {
		v.list = append(v.list, pattern{kind: prefixKind, text: text})
		v.lengths = append(v.lengths, len(text))
	}
	for _, n := range c.Networks {
		v.list = append(v.list, pattern{kind: networkKind, network: n})
		v.bits = append(v.bits, n.Bits())
	}
	for _, text := range c.Hashes {
		v.list = append(v.list, pattern{kind: hashKind, text: text})
	}
	v.known = make(map[pattern]bool, len(v.list))
	for _, p := range v.list {
		v.known[p] = true
		v.kinds |= p.kind
	}
	slices.Sort(v.lengths)
	slices.Sort(v.bits)
	v.lengths, v.bits = slices.Compact(v.lengths), slices.Compact(v.bits)
	return v
}

// address reads an address as conditions on the entry "ip" compare it.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}

// covering yields the patterns that are met by every value that meets p: p itself, the
// prefixes of these lengths, and the networks of these bits.
func covering(p pattern, lengths, bits []int) iter.Seq[pattern] {
	return func(yield func(pattern) bool) {
		if !yield(p) || p.kind == hashKind {
			return
		}
		network := p.network
		if p.kind == wholeKind && len(bits) > 0 {
			if a, ok := address(p.text); ok {
				network = netip.PrefixFrom(a, a.BitLen())
			}
		}
		if network.IsValid() {
			for _, n := range bits {
				if outer, err := network.Addr().Prefix(n); err == nil && n <= network.Bits() && !yield(pattern{kind: networkKind, network: outer}) {
					return
				}
			}
		}
		if p.kind == networkKind {
			return
		}
		for _, n := range lengths {
			if n <= len(p.text) && !yield(pattern{kind: prefixKind, text: p.text[:n]}) {
				return
			}
		}
	}
}

// cover reports whether every value that meets the pattern is known to meet one of v.
func (v *values) cover(p pattern) bool {
	for q := range covering(p, v.lengths, v.bits) {
		if v.known[q] {
			return true
		}
	}
	return false
}

// coverAll reports whether every value that meets one of o is known to meet one of v.
func (v *values) coverAll(o *values) bool {
	return !slices.ContainsFunc(o.list, func(p pattern) bool { return !v.cover(p) })
}

// mayHave reports whether all values that meet the pattern may meet one of v: they do, or
// that cannot be told from the two.
func (v *values) mayHave(p pattern) bool { return v.cover(p) || p.kind.unclear()&v.kinds != 0 }

// meet reports whether a value may meet one of each.
func (v *values) meet(o *values) bool {
	if len(v.list) > len(o.list) {
		v, o = o, v
	}
	return v.kinds.unclear()&o.kinds != 0 || slices.ContainsFunc(v.list, o.cover) ||
		// Whole values cover nothing but themselves.
		v.kinds != wholeKind && slices.ContainsFunc(o.list, v.cover)
}
