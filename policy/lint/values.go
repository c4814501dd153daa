package lint

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/policy"
)

// pattern is a value, prefix, network or hash that a condition lists.
type pattern struct {
	kind    kinds
	text    string       // for all kinds except networkKind
	network netip.Prefix // for networkKind
}

// kinds is a set of kinds of patterns.
type kinds uint8

const (
	wholeKind   kinds = 1 << iota // a whole value
	prefixKind                    // the beginning of a value
	networkKind                   // a network that contains an address
	hashKind                      // the hash of a secret value
)

// unclear returns the kinds of patterns that cannot be compared with those in k: it is not known
// whether some value meets both patterns. A hash may be the hash of any value, and the spelling of
// an address says nothing about its network.
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

// values are the patterns of a condition. The condition holds for a value that meets one of them.
// There may be ten thousand, so they are found in a map, not by a search through the list.
type values struct {
	list    []pattern
	known   map[pattern]bool // the patterns in list
	kinds   kinds            // the kinds of the patterns in list
	lengths []int            // the lengths of the prefixes, each once
	bits    []int            // the lengths of the networks, each once
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

// address parses an address in the form in which conditions on the entry "ip" compare it.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}

// covering yields the patterns that every value which meets p is known to meet: p itself, the
// prefixes of p with the given lengths, and the networks around p with the given bits.
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

// cover reports whether every value that meets p is known to meet a pattern of v.
func (v *values) cover(p pattern) bool {
	for q := range covering(p, v.lengths, v.bits) {
		if v.known[q] {
			return true
		}
	}
	return false
}

// coverAll reports whether every value that meets a pattern of o is known to meet a pattern of v.
func (v *values) coverAll(o *values) bool {
	return !slices.ContainsFunc(o.list, func(p pattern) bool { return !v.cover(p) })
}

// mayHave reports whether it is possible that every value which meets p also meets a pattern of v:
// that is known, or the patterns cannot be compared.
func (v *values) mayHave(p pattern) bool { return v.cover(p) || p.kind.unclear()&v.kinds != 0 }

// meet reports whether a value may meet both a pattern of v and a pattern of o.
func (v *values) meet(o *values) bool {
	if len(v.list) > len(o.list) {
		v, o = o, v
	}
	return v.kinds.unclear()&o.kinds != 0 || slices.ContainsFunc(v.list, o.cover) ||
		// Whole values cover only themselves.
		v.kinds != wholeKind && slices.ContainsFunc(o.list, v.cover)
}
