package policy

import (
	"strings"

	"github.com/headgate/headgate"
)

func (r *compiled) partNames() string {
	names := make([]string, len(r.parts))
	for i := range r.parts {
		names[i] = r.parts[i].Entry
	}
	return strings.Join(names, ", ")
}

// key makes the key that the rule counts the request under, or reports false if
// the descriptor lacks one of its entries.
func (s *Set) key(r *compiled, d Descriptor) (string, bool) {
	var space [192]byte
	key := space[:0]
	var value string
	for i := range r.parts {
		var ok bool
		if value, ok = d.Get(r.parts[i].Entry); !ok {
			return "", false
		}
		if len(r.parts) == 1 && r.parts[i].plain && len(value) <= headgate.MaxKey {
			return value, true
		}
		if i > 0 {
			key = append(key, separator)
		}
		key = s.appendValue(key, r, &r.parts[i], value)
	}
	switch {
	case len(key) > headgate.MaxKey:
		return shorten(key), true
	case len(r.parts) == 1 && string(key) == value:
		// An address in its one spelling already: no copy is needed.
		return value, true
	}
	return string(key), true
}

func (s *Set) appendValue(key []byte, r *compiled, p *compiledPart, value string) []byte {
	if p.secret {
		return s.hasher.append(key, p.Entry, value)
	}
	if p.address {
		var ok bool
		if key, ok = p.appendAddress(key, value); ok {
			return key
		}
	}
	if len(r.parts) == 1 {
		return append(key, value...)
	}
	return appendEscaped(key, value)
}
