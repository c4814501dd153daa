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

// key makes the key that the rule counts the request under, secrets hashed by h, or reports false if
// the descriptor lacks one of its entries.
func (r *compiled) key(d Descriptor, h *hasher) (string, bool) {
	var space [192]byte
	key := space[:0]
	var value string
	for i := range r.parts {
		var ok bool
		if value, ok = d.Get(r.parts[i].Entry); !ok {
			return "", false
		}
		if len(r.parts) == 1 && r.parts[i].plain && len(value) <= headgate.MaxKey && value[0] != shortened {
			return value, true
		}
		if i > 0 {
			key = append(key, separator)
		}
		key = r.appendValue(key, &r.parts[i], value, h)
	}
	switch {
	case len(key) > headgate.MaxKey, len(key) > 0 && key[0] == shortened:
		return shorten(key), true
	case len(r.parts) == 1 && string(key) == value:
		// An address in its one spelling already: no copy is needed.
		return value, true
	}
	return string(key), true
}

func (r *compiled) appendValue(key []byte, p *compiledPart, value string, h *hasher) []byte {
	if p.secret {
		if p.address {
			var space [64]byte
			if network, ok := p.appendAddress(space[:0], value); ok {
				value = string(network)
			}
		}
		return h.append(key, p.Entry, value)
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
