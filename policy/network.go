package policy

import (
	"net/netip"
	"slices"
)

// addressEntry is the entry whose values are addresses without being told so.
const addressEntry = "ip"

// networks finds out whether an address lies in one of many networks, in a time
// that depends on how many lengths they have, not on how many they are.
type networks struct {
	lengths4, lengths6 []int
	known              map[netip.Prefix]struct{}
}

// newNetworks returns nil if there are none.
func newNetworks(list []netip.Prefix) *networks {
	if len(list) == 0 {
		return nil
	}
	n := &networks{known: make(map[netip.Prefix]struct{}, len(list))}
	for _, p := range list {
		lengths := &n.lengths6
		if p.Addr().Is4() {
			lengths = &n.lengths4
		}
		if !slices.Contains(*lengths, p.Bits()) {
			*lengths = append(*lengths, p.Bits())
		}
		n.known[p] = struct{}{}
	}
	return n
}

// contains reports whether the value is an address in one of the networks.
func (n *networks) contains(value string) bool {
	a, err := netip.ParseAddr(value)
	if err != nil {
		return false
	}
	a = a.Unmap().WithZone("")
	lengths := n.lengths6
	if a.Is4() {
		lengths = n.lengths4
	}
	for _, bits := range lengths {
		if p, err := a.Prefix(bits); err == nil {
			if _, found := n.known[p]; found {
				return true
			}
		}
	}
	return false
}

// spelled returns the one spelling of an address, or the value itself if it is
// none. It allocates only if the spelling differs.
func spelled(value string) string {
	a, err := netip.ParseAddr(value)
	if err != nil {
		return value
	}
	var space [64]byte
	text := a.Unmap().WithZone("").AppendTo(space[:0])
	if string(text) == value {
		return value
	}
	return string(text)
}
