package policy

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/spelling"
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
	behind      []string
}

// Option changes how [New] makes a set.
type Option func(*options)

// HashKey sets the key with which secret values are hashed (HMAC-SHA256), of MinHashKey to
// MaxHashKey bytes. All nodes that share counters must have the same key. With another key, every
// counter of a secret starts afresh.
func HashKey(key []byte) Option {
	return func(o *options) { o.hashKey = slices.Clone(key) }
}

// OldHashKey sets the key with which secret values were hashed before the one of [HashKey]. An
// empty key says that they were hashed without a key. Set it while the key is being changed on one
// node after the other:
//
//   - Hashes in conditions and in the table of subjects may be made with either key.
//   - A rule that counts by a secret binds a request twice, under the new key and under the old
//     one. So a client has one allowance, however many nodes have changed.
//
// Remove it when every node has the new key and the longest period of the limits has passed.
func OldHashKey(key []byte) Option {
	return func(o *options) { o.oldHashKey, o.oldHashes = slices.Clone(key), true }
}

// UnkeyedHashes also accepts, in conditions and in the table of subjects, hashes that were made
// without a hash key. It is for a process that has made up a hash key, with which nobody can have
// written them. The keys of counters do not change.
func UnkeyedHashes() Option {
	return func(o *options) { o.unkeyed = true }
}

// Secrets names further entries whose values are secret, in addition to api_key, token and
// authorization.
func Secrets(entries ...string) Option {
	return func(o *options) { o.secrets = append(o.secrets, entries...) }
}

// Clock sets the clock that tells whether overrides and entries of lists have ended. If left out or
// nil, it is time.Now. It is read only for a request that matches one with an end, and must be safe
// for concurrent use.
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

// Denied adds entries to the deny list: requests that are denied without asking the store. The deny
// list is searched before the allow list.
func Denied(entries ...ListEntry) Option {
	return func(o *options) { o.deny = append(o.deny, entries...) }
}

// Ignored silences warnings of package lint in the whole set.
func Ignored(ignore ...Ignore) Option {
	return func(o *options) { o.ignore = append(o.ignore, ignore...) }
}

// Behind names the servers that read the paths of requests behind a door, such as "express", or
// "any"; docs/gateway.md lists them. The doors that read paths count those that these servers take
// for one as one, and refuse those that they may read in different ways.
func Behind(servers ...string) Option {
	return func(o *options) { o.behind = append(o.behind, servers...) }
}

// Behind returns the servers of [Behind], in the order given.
func (s *Set) Behind() []string { return slices.Clone(s.options.behind) }

func (o *options) check() []Mistake {
	var mistakes []Mistake
	for i, name := range o.behind {
		if _, problem := spelling.Behind(name); problem != "" {
			mistakes = append(mistakes, Mistake{Index: -1, Field: fmt.Sprintf("behind.%d", i), Text: problem})
		}
	}
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
