package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// MaxParts is how many parts the key of one rule may have.
const MaxParts = 8

// Part is one entry by which a rule's counters are kept. The entry "ip", and any entry with prefix
// lengths, is an IP address. It is brought to one spelling (an IPv4 address inside IPv6 becomes
// IPv4, a zone is dropped) and cut to its network; then it is hashed, if the entry is secret. A
// value that is not an address stays as it is.
type Part struct {
	// Entry is the entry's name. Required.
	Entry string
	// Bits4 is the prefix length for IPv4 addresses, 1 to 32. Zero keeps them
	// whole.
	Bits4 int
	// Bits6 is the prefix length for IPv6 addresses, 1 to 128. Zero keeps them whole. One customer
	// usually has a /64, and can use any address in it.
	Bits6 int
}

// ParsePart reads the text form of a part: ENTRY, ENTRY/BITS6 or
// ENTRY/BITS4/BITS6, such as "user", "ip/64" and "ip/24/64".
func ParsePart(s string) (Part, error) {
	words := strings.Split(s, "/")
	p := Part{Entry: words[0]}
	var err4, err6 error
	switch len(words) {
	case 1:
	case 2:
		p.Bits6, err6 = prefixLength(words[1], 128)
	case 3:
		p.Bits4, err4 = prefixLength(words[1], 32)
		p.Bits6, err6 = prefixLength(words[2], 128)
	default:
		return Part{}, headgate.Invalid("", "per", "key part %s: write it as user, ip/64 or ip/24/64", Quote(s))
	}
	for _, err := range []error{err4, err6} {
		if err != nil {
			return Part{}, headgate.Invalid("", "per", "key part %s: %v", Quote(s), err)
		}
	}
	if problem := p.check(); problem != "" {
		return Part{}, headgate.Invalid("", "per", "key part %s: %s", Quote(s), problem)
	}
	return p, nil
}

func prefixLength(s string, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("prefix length %q is not a whole number from 1 to %d", s, most)
	}
	return n, nil
}

// String writes the part as [ParsePart] reads it.
func (p Part) String() string {
	switch {
	case p.Bits4 != 0:
		return fmt.Sprintf("%s/%d/%d", p.Entry, p.Bits4, cmp.Or(p.Bits6, 128))
	case p.Bits6 != 0:
		return fmt.Sprintf("%s/%d", p.Entry, p.Bits6)
	}
	return p.Entry
}

// check returns what is wrong with the part, or "".
func (p Part) check() string {
	switch {
	case p.Bits4 < 0 || p.Bits4 > 32:
		return fmt.Sprintf("entry %q: the IPv4 prefix length is %d, must be 1 to 32", p.Entry, p.Bits4)
	case p.Bits6 < 0 || p.Bits6 > 128:
		return fmt.Sprintf("entry %q: the IPv6 prefix length is %d, must be 1 to 128", p.Entry, p.Bits6)
	}
	return checkEntryName(p.Entry)
}

// Address reports whether the part's values are IP addresses.
func (p Part) Address() bool { return p.Entry == "ip" || p.Bits4 != 0 || p.Bits6 != 0 }

// appendAddress appends the one spelling of the address, or of the network that
// it is counted under. It reports false if the value is no address.
func (p Part) appendAddress(dst []byte, value string) ([]byte, bool) {
	a, err := netip.ParseAddr(value)
	if err != nil {
		return dst, false
	}
	a = a.Unmap().WithZone("")
	bits := p.Bits6
	if a.Is4() {
		bits = p.Bits4
	}
	if bits == 0 || bits == a.BitLen() {
		return a.AppendTo(dst), true
	}
	network, err := a.Prefix(bits)
	if err != nil {
		return dst, false
	}
	return network.AppendTo(dst), true
}

// separator stands between the parts of a key. Within a part, the separator and the escape
// character are escaped, so that two different lists of values never make the same key.
const (
	separator = '|'
	escape    = '\\'
)

// appendEscaped appends one part of a joined key.
func appendEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		if value[i] == separator || value[i] == escape {
			dst = append(dst, escape)
		}
		dst = append(dst, value[i])
	}
	return dst
}

// split undoes the joining of n parts, or reports false if there are not n.
func split(key string, n int) ([]string, bool) {
	parts := make([]string, 0, n)
	var part []byte
	for i := 0; i < len(key); i++ {
		switch {
		case key[i] == separator:
			parts, part = append(parts, string(part)), nil
			continue
		case key[i] == escape && i+1 < len(key):
			i++
		}
		part = append(part, key[i])
	}
	parts = append(parts, string(part))
	return parts, len(parts) == n
}
