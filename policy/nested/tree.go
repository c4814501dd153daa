// Package nested finds the limits of ordered descriptors, which the configuration of
// envoyproxy/ratelimit nests in one another.
//
// # Basics
//
// An ordered descriptor is a list of entries in a domain. [New] compiles the files of all domains
// to a [Tree] and to a policy.Set. The set has a direct rule for each limit in the files. So the
// list of rules, the metrics, and the refund of one key, which all know rules by their names, also
// cover these limits. [Tree.Find] leads from a descriptor to its rule and key:
//
//	tree, set, err := nested.New(domains)
//	leaf, key, ok := tree.Find("messaging", policy.Descriptor{{"to_number", "2061111111"}})
//
// The entries are looked up one after the other, each among the nodes of its level. A node with the
// entry's own value comes first, then the nodes whose value has a star, in the order of the
// configuration, and last the node without a value. A choice is final: the next entry is looked up
// only below the node that the entry has found. The limit of the descriptor is the limit of the
// node that its last entry finds.
//
// There is a counter for each rule and each combination of the values that the configuration leaves
// open. So no two descriptors share a counter, unless share_threshold is set.
//
// [Rules] converts the same limits to rules that match descriptors of facts, and [Flatten] converts
// an ordered descriptor to such a descriptor.
//
// # Caveats
//
// envoyproxy/ratelimit compares key and value joined by "_". To it, an entry "a" with the value
// "b_c" is the same as an entry "a_b" with the value "c". In this package they differ.
//
// As with all rules, keys hold hashes of secret values. While a hash key is being changed, requests
// are counted under the new one only.
package nested

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
)

// Domain is a domain with its nodes. Several Domains with the same name are joined, with the nodes
// of all of them in their order.
type Domain struct {
	Name  string
	Nodes []Node
	Pos   policy.Position
}

// Node is one descriptor of the configuration. Its fields are those of the file.
type Node struct {
	// Key is the entry's name. Required.
	Key string
	// Value is the entry's value. A star in it matches any text. If Value is empty, the node
	// matches every value.
	Value string
	// Limit is the limit of descriptors that end at this node, or nil.
	Limit *Limit
	// Shadow makes the limit count but never deny. Quota makes it deny a request only if all of the
	// request's quotas are exceeded. Callers are told that a quota is exceeded, unless Shadow is
	// set as well.
	Shadow, Quota bool
	// Share makes all values that match the star share one counter.
	Share bool
	// Detailed says that requests are measured by the values of all their entries, ValueToMetric
	// that they are measured by the value of this node's entry.
	Detailed, ValueToMetric bool
	// Metadata is returned to callers whose descriptors the limit admits. Its values have the types
	// that package encoding/json produces.
	Metadata map[string]any
	// Nodes are the nodes for the next entry.
	Nodes []Node
	// Pos is where the node was written, for messages.
	Pos policy.Position
}

// Limit is the limit of a node.
type Limit struct {
	// Name is the name by which other limits can replace this one. Several limits may share a name.
	Name string
	// Replaces are names of limits. Where this limit binds a request, limits with these names do
	// not.
	Replaces []string
	// Unlimited admits everything. Such a limit can still replace others.
	Unlimited bool
	// Count is how many units pass in each Period, 0 or more. A value above headgate.MaxCount is
	// reduced to headgate.MaxCount.
	Count int64
	// Period is the length of the windows. They begin at the multiples of Period since 1970-01-01
	// UTC.
	Period time.Duration
}

// Tree maps ordered descriptors to limits. It is immutable and safe for concurrent use. [New] makes
// one.
type Tree struct {
	domains map[string]*level
	set     *policy.Set
	limits  []limited // in the order of the configuration
}

// limited is a limit with the nodes that lead to it, for [Tree.Explain].
type limited struct {
	domain, name string
	way          []*node
	leaf         *Leaf
}

// level has the nodes among which one entry is looked up: those without stars by what they match,
// and those with stars in their order.
type level struct {
	exact map[entry]*node
	stars []*star
}

// entry is the name and the value that a node without stars matches. The value "" matches every
// value.
type entry struct{ name, value string }

// star is a node whose key or value has stars.
type star struct {
	name, value glob
	node        *node
}

func newStar(key, value string) star {
	s := star{name: newGlob(key), value: newGlob(value)}
	if value == "" {
		s.value = newGlob(Star)
	}
	return s
}

func (s *star) matches(e *policy.Entry) bool {
	return s.name.matches(e.Name) && s.value.matches(e.Value)
}

type node struct {
	leaf  *Leaf // nil if there is no limit
	nodes *level
	// counted says that the entry's value is a part of the key, named that the entry's name is a
	// part of the key as well.
	counted, named bool
	// exact says that the node has a value, and no star in its key or value. byName says that its
	// key has a star. pattern is, for a node with stars, the text in which they are, as it may be
	// shown: the key and the value if byName is set, else the value. Otherwise it is empty.
	exact, byName bool
	pattern       string
	star          *star // nil if there is none
	// own is the name and the value that a node without stars matches. key and value are the node's
	// key and value as they may be shown, with hashes in place of secrets. path is the path from
	// the domain to the node, also as it may be shown.
	own              entry
	path, key, value string
	pos              policy.Position
	// shared says that all values which match the star share one counter, valued that the entry's
	// value is part of the name under which requests are measured.
	shared, valued bool
}

// Leaf is the limit of the descriptors that end at one node. It is immutable.
type Leaf struct {
	// Rule is the rule that counts these descriptors. It is nil if the limit admits everything or
	// nothing.
	Rule *headgate.Rule
	// Shadow and Quota are those of the node.
	Shadow, Quota bool
	// Limit is the limit of the node. Its Count is reduced to headgate.MaxCount if it is larger.
	Limit
	// Replaced says that another limit replaces this one by its Name.
	Replaced bool
	// Detailed is that of the node. Measured says that requests are also to be measured by values,
	// under the name that [Tree.Measure] returns.
	Detailed, Measured bool
	// Metadata is that of the node.
	Metadata map[string]any
	// Listed is, for a limit that admits everything or nothing, the corresponding entry of a list.
	Listed *policy.ListEntry

	// For a limit that admits nothing: a rule with its name, and the limit with a count of 0. Both
	// are used only in decisions.
	none  *headgate.Rule
	empty *headgate.Limit
}

// Denies reports whether the limit admits nothing at all.
func (l *Leaf) Denies() bool { return !l.Unlimited && l.Count == 0 }

// Nothing returns the decision, at the given time, of a limit that admits nothing; see Denies. No
// store is asked for it. ResetAfter ends with the window, because envoyproxy/ratelimit counts such
// limits by windows, too. Check is -1.
func (l *Leaf) Nothing(at headgate.Instant) headgate.Decision {
	return headgate.Decision{
		Rule: l.none, Limit: l.empty, Check: -1, Shadow: l.Shadow || l.Quota,
		RetryAfter: headgate.Never, ResetAfter: WindowLeft(l.Period, at), At: at,
	}
}

// WindowLeft returns the time from at until the window that contains at ends. Windows begin at the
// multiples of period since 1970-01-01 UTC.
func WindowLeft(period time.Duration, at headgate.Instant) time.Duration {
	since := time.Duration(at) * time.Microsecond
	return period - since%period
}

// New compiles the domains to a tree, and to the set of its rules. The options apply to the set.
// The error is a [*policy.Error] with every mistake, each at the position of its node.
func New(domains []Domain, opts ...policy.Option) (*Tree, *policy.Set, error) {
	c, err := compile(domains, opts)
	if err != nil {
		return nil, nil, err
	}
	var rules []policy.Rule
	t := &Tree{domains: c.domains, limits: make([]limited, len(c.placed))}
	for i, p := range c.placed {
		t.limits[i] = limited{p.domain, p.name, p.nodes, p.leaf}
		if p.leaf.Rule != nil {
			rules = append(rules, policy.Rule{Name: p.name, Limits: p.leaf.Rule, Mode: p.leaf.mode(), Direct: true, Pos: p.node().Pos})
		}
	}
	set, err := policy.New(rules, opts...)
	if err != nil {
		return nil, nil, err
	}
	t.set = set
	return t, set, nil
}

// compiler compiles nodes to levels, and collects the limits and the mistakes.
type compiler struct {
	hasher   *policy.Set
	domains  map[string]*level
	placed   []placed
	names    map[string]bool // of the rules
	replaced map[string]bool // the names of limits that others replace
	mistakes []policy.Mistake
}

// placed is a limit with the nodes that lead to it.
type placed struct {
	domain string
	way    []step
	nodes  []*node // the compiled nodes of the way
	name   string  // the name of its rule
	leaf   *Leaf
}

// step is one node of a way: the node nodes[at] of a level.
type step struct {
	nodes []Node
	at    int
}

func (s step) node() *Node { return &s.nodes[s.at] }

func (p *placed) node() *Node { return p.way[len(p.way)-1].node() }

func compile(domains []Domain, opts []policy.Option) (*compiler, error) {
	// An empty set with the options knows which entries are secret, and hashes their values.
	hasher, err := policy.New(nil, opts...)
	if err != nil {
		return nil, err
	}
	c := &compiler{hasher: hasher, domains: make(map[string]*level), names: make(map[string]bool), replaced: make(map[string]bool)}
	domains = merge(domains)
	for i := range domains {
		c.findReplaced(domains[i].Nodes)
	}
	for i := range domains {
		c.domains[domains[i].Name] = c.level(domains[i].Name, domains[i].Name, nil, nil, domains[i].Nodes)
	}
	if c.mistakes != nil {
		return nil, &policy.Error{Mistakes: c.mistakes}
	}
	return c, nil
}

// merge joins domains that have the same name. The nodes of all of them stay in their order.
func merge(domains []Domain) []Domain {
	var merged []Domain
	places := make(map[string]int, len(domains))
	for i := range domains {
		d := domains[i]
		if at, taken := places[d.Name]; taken {
			merged[at].Nodes = append(merged[at].Nodes, d.Nodes...)
			continue
		}
		places[d.Name] = len(merged)
		d.Nodes = slices.Clip(d.Nodes) // Do not append into the caller's array.
		merged = append(merged, d)
	}
	return merged
}

func (c *compiler) add(at policy.Position, format string, args ...any) {
	c.mistakes = append(c.mistakes, policy.Mistake{Index: -1, Pos: at, Text: fmt.Sprintf(format, args...)})
}

func (c *compiler) findReplaced(nodes []Node) {
	for i := range nodes {
		if l := nodes[i].Limit; l != nil {
			for _, name := range l.Replaces {
				c.replaced[name] = true
			}
		}
		c.findReplaced(nodes[i].Nodes)
	}
}

// level compiles the nodes of one level. way and passed are the nodes that lead to it, as written
// and compiled. path is their path, from which the names of rules are made.
func (c *compiler) level(domain, path string, way []step, passed []*node, nodes []Node) *level {
	l := &level{exact: make(map[entry]*node, len(nodes))}
	first := make(map[entry]policy.Position, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		at := entry{n.Key, n.Value}
		if before, taken := first[at]; taken {
			where := fmt.Sprintf("in line %d", before.Line)
			if before.File != n.Pos.File {
				where = fmt.Sprintf("at %s:%d", before.File, before.Line)
			}
			c.add(n.Pos, "the descriptor %s is there twice, first %s; keep one", c.describe(n), where)
			continue
		}
		first[at] = n.Pos
		made := &node{valued: n.ValueToMetric, shared: n.Share, key: n.Key, value: shown(n, c.hasher), pos: n.Pos, own: at}
		below := path + "." + n.Key
		if n.Value != "" {
			below += "_" + made.value
		}
		made.path = below
		switch s := newStar(n.Key, n.Value); {
		case s.name.starred():
			made.counted, made.named = !n.Share, !n.Share
			made.pattern, made.byName = strings.TrimPrefix(below, path+"."), true
			made.star = &s
		case n.Value == "":
			made.counted = true
			l.exact[at] = made
		case s.value.starred():
			made.counted = !n.Share
			made.pattern, made.star = made.value, &s
		default:
			made.exact = true
			l.exact[at] = made
		}
		if made.star != nil {
			made.star.node = made
			l.stars = append(l.stars, made.star)
		}
		here, arrived := append(way[:len(way):len(way)], step{nodes, i}), append(passed[:len(passed):len(passed)], made)
		if n.Limit != nil {
			made.leaf = c.leaf(domain, below, here, arrived)
		}
		if len(n.Nodes) > 0 {
			made.nodes = c.level(domain, below, here, arrived, n.Nodes)
		}
	}
	return l
}

// leaf compiles the limit of the node at the end of a way. nodes are the compiled nodes of the way.
func (c *compiler) leaf(domain, path string, way []step, nodes []*node) *Leaf {
	n := way[len(way)-1].node()
	leaf := &Leaf{
		Shadow: n.Shadow, Quota: n.Quota, Limit: *n.Limit, Metadata: n.Metadata,
		Replaced: n.Limit.Name != "" && c.replaced[n.Limit.Name], Detailed: n.Detailed,
	}
	leaf.Measured = n.Detailed || slices.ContainsFunc(way, func(s step) bool { return s.node().ValueToMetric })
	name := ruleName(path, c.names)
	c.names[name] = true
	c.placed = append(c.placed, placed{domain, way, nodes, name, leaf})
	if leaf.Unlimited || leaf.Count == 0 {
		leaf.Listed = &policy.ListEntry{Name: name, Pos: n.Pos}
	}
	if leaf.Unlimited {
		return leaf
	}
	leaf.Count = min(leaf.Count, headgate.MaxCount)
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: max(leaf.Count, 1), Period: leaf.Period}
	rule, err := headgate.NewRule(name, window)
	switch {
	case err != nil:
		c.add(n.Pos, "%s", errtext.Text(err))
	case leaf.Count == 0:
		window.Count = 0
		leaf.none, leaf.empty = rule, &window
	default:
		leaf.Rule = rule
	}
	return leaf
}

// mode returns the mode of the leaf's rule.
func (l *Leaf) mode() policy.Mode {
	switch {
	case l.Shadow:
		return policy.ModeShadow
	case l.Quota:
		return policy.ModeQuota
	}
	return policy.ModeEnforce
}

// describe names the node in a message. A secret value is hashed.
func (c *compiler) describe(n *Node) string {
	if n.Value == "" {
		return fmt.Sprintf("%q", n.Key)
	}
	return fmt.Sprintf("%q with the value %q", n.Key, shown(n, c.hasher))
}

// Star matches any text in a key or a value, even an empty one.
const Star = "*"

// glob is a text split at its stars. A text without a star has one part.
type glob []string

func newGlob(text string) glob { return strings.Split(text, Star) }

// starred reports whether the glob has a star.
func (g glob) starred() bool { return len(g) > 1 }

// text returns the text from which the glob was made.
func (g glob) text() string { return strings.Join(g, Star) }

// prefix returns the text before the star, if the glob has a single star, at its end.
func (g glob) prefix() (text string, ok bool) {
	if len(g) == 2 && g[1] == "" {
		return g[0], true
	}
	return "", false
}

// matches reports whether the glob matches the text. It takes the first occurrence of each part
// between two stars, which leaves the most text for the parts that follow.
func (g glob) matches(text string) bool {
	last := len(g) - 1
	if last == 0 {
		return text == g[0]
	}
	text, ok := strings.CutPrefix(text, g[0])
	if !ok {
		return false
	}
	for _, part := range g[1:last] {
		if _, text, ok = strings.Cut(text, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(text, g[last])
}

// covers reports whether this glob matches everything that the other one matches. It matches the
// other glob's text with its stars: no part of g contains a star, so only a star of g can match a
// star of the other glob.
func (g glob) covers(other glob) bool { return g.matches(other.text()) }

// apart reports whether it is certain that no text matches both globs. If both have stars, it
// compares only their beginnings and their ends.
func (g glob) apart(other glob) bool {
	if !g.starred() || !other.starred() {
		return !g.matches(other.text()) && !other.matches(g.text())
	}
	begin, end := other[0], other[len(other)-1]
	theirs, last := g[0], g[len(g)-1]
	return !strings.HasPrefix(begin, theirs) && !strings.HasPrefix(theirs, begin) ||
		!strings.HasSuffix(end, last) && !strings.HasSuffix(last, end)
}

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
