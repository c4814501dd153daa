package nested

import (
	"strconv"

	"github.com/headgate/headgate/policy"
)

// The entries that [Flatten] adds.
const (
	// DomainEntry has the domain.
	DomainEntry = "domain"
	// NamesEntry has the names of the ordered descriptor's entries, in their
	// order, joined by "|".
	NamesEntry = "descriptor"
	// AddressEntry has the value of the entry RemoteAddress, unless there is an
	// entry of this name already.
	AddressEntry = "ip"
	// RemoteAddress is what Envoy calls the client's address.
	RemoteAddress = "remote_address"
)

// Flatten makes a descriptor of facts of an ordered one, and appends it to dst:
// the domain, the names in their order, and then each entry under its name. In a
// name, what entries of policies cannot have becomes "_". A name that is there
// already gets a number: the second "user" is "user:2".
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

// joinNames is the value of NamesEntry.
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

// has reports whether there is an entry of that name, whatever its value.
func has(d policy.Descriptor, name string) bool {
	for i := range d {
		if d[i].Name == name {
			return true
		}
	}
	return false
}

// entryName is the name as an entry of a policy may have it.
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

// numbered is the first name of its kind that is free.
func numbered(d policy.Descriptor, name string) string {
	const room = 3 // for ":" and a number: there are no more than policy.MaxEntries
	for n := 2; ; n++ {
		if made := name[:min(len(name), policy.MaxName-room)] + ":" + strconv.Itoa(n); !has(d, made) {
			return made
		}
	}
}
