package nested

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Has reports whether the domain is one of the tree's.
func (t *Tree) Has(domain string) bool { return t.domains[domain] != nil }

// Find returns what binds the descriptor, and the key that it is counted under;
// nil if nothing does. An empty value is a value like any other. Find allocates
// for keys of several values, secret ones and long ones only.
func (t *Tree) Find(domain string, d policy.Descriptor) (leaf *Leaf, key string) {
	l := t.domains[domain]
	if l == nil || len(d) == 0 {
		return nil, ""
	}
	k := keyMaker{set: t.set}
	var at *node
	for i := range d {
		if l == nil {
			return nil, ""
		}
		if at = l.find(&d[i]); at == nil {
			return nil, ""
		}
		if at.counted {
			k.add(&d[i], at.named)
		}
		l = at.nodes
	}
	if at.leaf == nil {
		return nil, ""
	}
	return at.leaf, k.key()
}

// find returns the node that the entry arrives at, or nil.
func (l *level) find(e *policy.Entry) *node {
	if e.Value != "" {
		if n := l.exact[entry{e.Name, e.Value}]; n != nil {
			return n
		}
	}
	for i := range l.stars {
		if l.stars[i].matches(e) {
			return l.stars[i].node
		}
	}
	return l.exact[entry{name: e.Name}]
}

// JoinKey makes one key of the values of all entries, in their order, as [Tree.Find]
// makes it of those that the configuration leaves open.
func JoinKey(set *policy.Set, d policy.Descriptor) string {
	k := keyMaker{set: set}
	for i := range d {
		k.add(&d[i], false)
	}
	return k.key()
}

// keyMaker joins values to a key, as the keys of rules that count by several
// entries are joined.
type keyMaker struct {
	set    *policy.Set
	first  string
	n      int
	joined []byte
	space  [192]byte
}

func (k *keyMaker) add(e *policy.Entry, named bool) {
	value := e.Value
	if k.set.Secret(e.Name) {
		value = k.set.Hash(e.Name, value)
	}
	if named {
		value = e.Name + "=" + value
	}
	switch k.n {
	case 0:
		k.first = value
	case 1:
		k.joined = appendEscaped(k.space[:0], k.first)
		fallthrough
	default:
		k.joined = appendEscaped(append(k.joined, '|'), value)
	}
	k.n++
}

func appendEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		if value[i] == '|' || value[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, value[i])
	}
	return dst
}

func (k *keyMaker) key() string {
	if k.n < 2 {
		if len(k.first) <= headgate.MaxKey {
			return k.first
		}
		k.joined = append(k.joined, k.first...)
	}
	if len(k.joined) > headgate.MaxKey {
		// It begins with a byte that text does not.
		sum := sha256.Sum256(k.joined)
		return "\x00" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return string(k.joined)
}
