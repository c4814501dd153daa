package headgate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of a [Rule] and of a request.
const (
	// MaxName is the longest rule name, in bytes.
	MaxName = 128
	// MaxKey is the longest key, in bytes.
	MaxKey = 1024
	// MaxTag is the longest tag of a rule, in bytes.
	MaxTag = 32
	// MaxLimits is how many limits one rule may have.
	MaxLimits = 16
	// MaxChecks is how many checks one request may have.
	MaxChecks = 64
)

// Rule is a named set of limits that are checked and charged together. It is
// immutable and safe for concurrent use; make one with [NewRule].
type Rule struct {
	name   string
	tag    string
	limits []Limit
	id     uint64
}

// NewRule returns a rule, or an [*InvalidError] that lists every mistake in it.
// The name is 1 to MaxName bytes of printable UTF-8 without spaces or braces,
// which mean a hash slot to Redis; counters are kept under it.
func NewRule(name string, limits ...Limit) (*Rule, error) {
	var problems Problems
	if p := checkName("name", name, MaxName); p != "" {
		problems.Add("name", "%s", p)
	}
	if len(limits) == 0 || len(limits) > MaxLimits {
		problems.Add("limits", "it has %d limits, must have 1 to %d", len(limits), MaxLimits)
	}
	r := &Rule{name: name, limits: append([]Limit(nil), limits...), id: fnv1a(name)}
	shapes := make(map[uint64]int, len(limits))
	for i := range r.limits {
		l := &r.limits[i]
		mistakes := l.check()
		for _, m := range mistakes {
			problems.Add(fmt.Sprintf("limits[%d].%s", i, m.Field), "limit %d: %s", i+1, m.Text)
		}
		if len(mistakes) == 0 {
			l.prepare(shapes[l.shape()])
			shapes[l.shape()]++
		}
	}
	switch penalties := r.penalties(); {
	case penalties > 1:
		problems.Add("limits", "it has %d penalties, must have at most one", penalties)
	case penalties == 1 && len(limits) == 1:
		problems.Add("limits", "its only limit is a penalty, which counts the denials of others; give it one of those")
	}
	if err := problems.Err(fmt.Sprintf("rule %q", name)); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Rule) penalties() int {
	n := 0
	for i := range r.limits {
		if r.limits[i].Algorithm == Penalty {
			n++
		}
	}
	return n
}

// MustRule is [NewRule] for rules written in the program itself: it panics on a
// mistake.
func MustRule(name string, limits ...Limit) *Rule {
	r, err := NewRule(name, limits...)
	if err != nil {
		panic(err)
	}
	return r
}

// WithTag returns a copy of the rule all of whose counters a Redis Cluster keeps
// in one hash slot, the tag's, and so on one node: a request under rules of one tag
// is one call, and what they count is not spread over the nodes. The tag is 1 to
// MaxTag bytes like those of a name, else the error is an [*InvalidError]; an empty
// one takes the rule's tag away. It is a part of the counters' names: another tag is
// other counters. A store that is not a cluster decides alike with any tag.
func (r *Rule) WithTag(tag string) (*Rule, error) {
	if tag != "" {
		if p := checkName("tag", tag, MaxTag); p != "" {
			return nil, Invalid(fmt.Sprintf("rule %q", r.name), "tag", "%s", p)
		}
	}
	tagged := *r
	tagged.tag = tag
	return &tagged, nil
}

// Name is the name that counters are kept under.
func (r *Rule) Name() string { return r.name }

// Tag is what [Rule.WithTag] was given, or "". A nil rule has none.
func (r *Rule) Tag() string {
	if r == nil {
		return ""
	}
	return r.tag
}

// ID is a hash of the name, the same in every process (64-bit FNV-1a). Names come
// from the program, so it need not withstand an adversary.
func (r *Rule) ID() uint64 { return r.id }

func fnv1a(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

// Limits are the rule's limits. The slice is shared and must not be changed. A nil rule
// has none.
func (r *Rule) Limits() []Limit {
	if r == nil {
		return nil
	}
	return r.limits
}

// String is the name and the limits, such as "login (20 per 1m, 5 per 3s)".
func (r *Rule) String() string {
	var b strings.Builder
	b.WriteString(r.name)
	sep := " ("
	for i := range r.limits {
		b.WriteString(sep)
		b.WriteString(r.limits[i].String())
		sep = ", "
	}
	b.WriteString(")")
	return b.String()
}

// checkName returns what is wrong with a rule's name or tag, or "".
func checkName(what, name string, most int) string {
	if name == "" || len(name) > most {
		return fmt.Sprintf("the %s has %d bytes, must have 1 to %d", what, len(name), most)
	}
	for i, c := range name {
		if c == ' ' || c == '{' || c == '}' || c == utf8.RuneError || !unicode.IsPrint(c) {
			return fmt.Sprintf("the %s has %q at byte %d; spaces, control characters and braces are not allowed", what, c, i)
		}
	}
	return ""
}
