package nested

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// shown returns the node's value as names and messages may show it: if the entry is secret, each
// part between stars is replaced by its hash. The hashes are those that keys have.
func shown(n *Node, by *policy.Set) string {
	if n.Value == "" || !by.Secret(n.Key) {
		return n.Value
	}
	parts := newGlob(n.Value)
	for i, part := range parts {
		if part != "" {
			parts[i] = "#" + by.Hash(n.Key, part)
		}
	}
	return parts.text()
}

// digest returns 48 bits of a hash as 12 hexadecimal digits. They are enough to tell the paths of
// one configuration apart.
func digest(text string) string {
	sum := sha256.Sum256([]byte("headgate descriptor v1\x00" + text))
	return hex.EncodeToString(sum[:6])
}

// ruleName returns the name of a node's rule: the node's path, as envoyproxy/ratelimit names its
// metrics. Characters that a rule's name cannot have become "_". If the path cannot be the name as
// it is, because of its characters or its length, or because another rule has that name, a digest
// of the path is appended, and the path is cut to make room for it.
func ruleName(path string, taken map[string]bool) string {
	name := strings.Map(func(c rune) rune {
		if c == ' ' || c == '{' || c == '}' || c == utf8.RuneError || !unicode.IsPrint(c) {
			return '_'
		}
		return c
	}, path)
	if name == path && len(name) <= headgate.MaxName && !taken[name] {
		return name
	}
	mark := "~" + digest(path)
	name = strings.ToValidUTF8(name[:min(len(name), headgate.MaxName-len(mark))], "") + mark
	for taken[name] {
		// An earlier node has the same path and so the same digest. Different nodes can have one
		// path: the key "a_b", and the key "a" with the value "b".
		name = name[:len(name)-len(mark)] + "~" + digest(name)
	}
	return name
}
