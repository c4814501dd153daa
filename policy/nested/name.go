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

// shown is the node's value as it may be seen: as it is, or a hash in place of a
// secret. Hashes are made as those in keys are.
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

// digest is enough of a hash to tell the paths of one configuration apart.
func digest(text string) string {
	sum := sha256.Sum256([]byte("headgate descriptor v1\x00" + text))
	return hex.EncodeToString(sum[:6])
}

// ruleName is the name of the rule of a node: its path, as envoyproxy/ratelimit
// names its metrics. What a rule's name cannot hold is left out; a digest of the
// whole path keeps the name unique then, and where two paths read alike.
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
		// Two paths that read alike and have one digest: they are one text.
		name = name[:len(name)-len(mark)] + "~" + digest(name)
	}
	return name
}
