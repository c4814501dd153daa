package nested

import (
	"strconv"

	"github.com/headgate/headgate/policy"
)

// The entries that [Flatten] adds.
const (
	// DomainEntry has the domain.
	DomainEntry = "domain"
	// NamesEntry has the names of the ordered descriptor's entries, in their order, joined by "|".
	NamesEntry = "descriptor"
	// AddressEntry has the value of the entry RemoteAddress, unless the ordered descriptor has an
	// entry with the name AddressEntry.
	AddressEntry = "ip"
	// RemoteAddress is the name under which Envoy sends the client's address.
	RemoteAddress = "remote_address"
)

// Flatten converts an ordered descriptor to a descriptor of facts, and appends it to dst: the
// domain, the names in their order, and then each entry under its name. In a name, characters that
// the names of entries in policies cannot have become "_", and a name that is too long is cut. If a
// name occurs again, it gets a number: the second "user" is "user:2".
func Flatten(dst policy.Descriptor, domain string, d policy.Descriptor) policy.Descriptor {
	begin := len(dst)
	dst = append(dst, policy.Entry{Name: DomainEntry, Value: domain}, policy.Entry{Name: NamesEntry, Value: joinNames(d)})
	for i := range d {
		name := entryName(d[i].Name)
		if has(dst[begin:], name) {
			name = numbered(dst[begin:], name)
		}
		dst = append(dst, policy.Entry{Name: name, Value: d[i].Value})
	}
	if !has(dst[begin:], AddressEntry) {
		for i := range d {
			if d[i].Name == RemoteAddress {
				return append(dst, policy.Entry{Name: AddressEntry, Value: d[i].Value})
			}
		}
	}
	return dst
}

// joinNames returns the value of NamesEntry.
func joinNames(d policy.Descriptor) string {
	if len(d) == 1 {
		return d[0].Name
	}
	var space [192]byte
	names := space[:0]
	for i := range d {
		if i > 0 {
			names = append(names, '|')
		}
		names = appendEscaped(names, d[i].Name)
	}
	return string(names)
}

// has reports whether there is an entry with the name, whatever its value is.
func has(d policy.Descriptor, name string) bool {
	for i := range d {
		if d[i].Name == name {
			return true
		}
	}
	return false
}

// entryName converts a name to one that an entry in a policy can have.
func entryName(name string) string {
	if clean(name) {
		return name
	}
	made := []byte(name[:min(len(name), policy.MaxName)])
	for i, c := range made {
		if !inName(c) {
			made[i] = '_'
		}
	}
	if len(made) == 0 {
		return "_"
	}
	return string(made)
}

func clean(name string) bool {
	for i := range len(name) {
		if !inName(name[i]) {
			return false
		}
	}
	return name != "" && len(name) <= policy.MaxName
}

func inName(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		return true
	}
	return false
}

// numbered returns the first of the names "name:2", "name:3" … that no entry of d has. A long name
// is cut to make room.
func numbered(d policy.Descriptor, name string) string {
	const room = 3 // for ":" and a number, which is at most policy.MaxEntries
	for n := 2; ; n++ {
		if made := name[:min(len(name), policy.MaxName-room)] + ":" + strconv.Itoa(n); !has(d, made) {
			return made
		}
	}
}
