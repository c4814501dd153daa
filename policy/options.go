package policy

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

type options struct {
	hashKey     []byte
	oldHashKey  []byte
	oldHashes   bool // there is an old hash key, even if it is empty
	unkeyed     bool
	secrets     []string
	clock       func() time.Time
	subjects    *Subjects
	allow, deny []ListEntry
	ignore      []Ignore
	declared    []string
}

// Option changes how [New] makes a set.
type Option func(*options)

// HashKey sets the key, MinHashKey to MaxHashKey bytes, under which secret
// values are hashed (HMAC-SHA256). All nodes that share counters must have the
// same key; with another key every counter of a secret starts afresh.
func HashKey(key []byte) Option {
	return func(o *options) { o.hashKey = slices.Clone(key) }
}

// OldHashKey sets the key that secret values were hashed under before the one of
// [HashKey]; an empty one says that they were hashed without a key. It is for
// the time in which the key is changed on one node after the other:
//
//   - Hashes in conditions and in the table of subjects may be of either key.
//   - A rule that counts by a secret binds a request twice, under the new key and
//     the old one, so that a client has one allowance, however many nodes have
//     changed.
//
// Take it away again when every node has the new key and the longest period of the
// limits has passed.
func OldHashKey(key []byte) Option {
	return func(o *options) { o.oldHashKey, o.oldHashes = slices.Clone(key), true }
}

// UnkeyedHashes lets hashes in conditions and in the table of subjects be those
// that are made without a hash key, besides: for a process that has made up a key
// which nobody can have written them with. What is counted does not change.
func UnkeyedHashes() Option {
	return func(o *options) { o.unkeyed = true }
}

// Secrets names entries whose values are secret besides api_key, token and
// authorization.
func Secrets(entries ...string) Option {
	return func(o *options) { o.secrets = append(o.secrets, entries...) }
}

// Clock sets the clock that tells whether overrides and list entries have
// ended; time.Now if left out or nil. It is read only for a request that meets
// one with an end, and must be safe for concurrent use.
func Clock(now func() time.Time) Option {
	return func(o *options) {
		if o.clock = now; now == nil {
			o.clock = time.Now
		}
	}
}

// SubjectTable sets the table of clients.
func SubjectTable(table Subjects) Option {
	return func(o *options) { o.subjects = table.clone() }
}

// Allowed adds entries to the allow list: requests that no rule binds.
func Allowed(entries ...ListEntry) Option {
	return func(o *options) { o.allow = append(o.allow, entries...) }
}

// Denied adds entries to the deny list: requests that are denied without
// asking the store. It goes before the allow list.
func Denied(entries ...ListEntry) Option {
	return func(o *options) { o.deny = append(o.deny, entries...) }
}

// Ignored silences warnings of package lint in the whole set.
func Ignored(ignore ...Ignore) Option {
	return func(o *options) { o.ignore = append(o.ignore, ignore...) }
}

func (o *options) check() []Mistake {
	var mistakes []Mistake
	if n := len(o.hashKey); o.hashKey != nil && (n < MinHashKey || n > MaxHashKey) {
		mistakes = append(mistakes, Mistake{Index: -1, Text: fmt.Sprintf("the hash key has %d bytes, must have %d to %d", n, MinHashKey, MaxHashKey)})
	}
	if n := len(o.oldHashKey); n != 0 && (n < MinHashKey || n > MaxHashKey) {
		mistakes = append(mistakes, Mistake{Index: -1, Text: fmt.Sprintf("the old hash key has %d bytes, must have %d to %d, or none", n, MinHashKey, MaxHashKey)})
	}
	if o.oldHashes && bytes.Equal(o.oldHashKey, o.hashKey) {
		mistakes = append(mistakes, Mistake{Index: -1, Text: "the old hash key is the hash key; leave it out, or set the new one"})
	}
	for _, entry := range o.secrets {
		if p := checkEntryName(entry); p != "" {
			mistakes = append(mistakes, Mistake{Index: -1, Text: "secret " + p})
		}
	}
	if len(o.declared) > MaxDeclared {
		mistakes = append(mistakes, Mistake{Index: -1, Field: "entries", Text: fmt.Sprintf("there are %d entries, must be at most %d", len(o.declared), MaxDeclared)})
	}
	for i, entry := range o.declared {
		if p := checkEntryName(entry); p != "" {
			mistakes = append(mistakes, Mistake{Index: -1, Field: fmt.Sprintf("entries.%d", i), Text: p})
		}
	}
	for i := range o.ignore {
		if p := o.ignore[i].check(); p != "" {
			mistakes = append(mistakes, Mistake{Index: -1, Field: fmt.Sprintf("ignore.%d", i), Text: p})
		}
	}
	return append(mistakes, o.checkLists()...)
}
