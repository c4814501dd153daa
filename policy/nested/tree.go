package nested

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
)

// Domain is a domain with its nodes. Several Domains of the same name are one, with the nodes of
// all of them in their order.
type Domain struct {
	Name  string
	Nodes []Node
	Pos   policy.Position
}

// Node is one descriptor of the configuration. Its fields are those of the file.
type Node struct {
	// Key is the entry's name. Required.
	Key string
	// Value is the entry's value, in which a star stands for any text. If it is empty, every value
	// matches.
	Value string
	// Limit is the limit of descriptors that end at this node, or nil.
	Limit *Limit
	// Shadow makes the limit count and never deny. Quota makes it deny only if all quotas of a
	// request are exceeded; callers are told when it is exceeded, unless Shadow is set as well.
	Shadow, Quota bool
	// Share makes all values that the star matches share one counter.
	Share bool
	// Detailed has requests measured by all of their values, ValueToMetric by the value of this
	// node.
	Detailed, ValueToMetric bool
	// Metadata is for callers whose descriptors the limit admits. Its values are of the types that
	// package encoding/json produces.
	Metadata map[string]any
	// Nodes are the nodes for the next entry.
	Nodes []Node
	// Pos is where the node was written, for messages.
	Pos policy.Position
}

// Limit is the limit of a node.
type Limit struct {
	// Name is the name by which other limits can replace this one. Several limits may have the same
	// name.
	Name string
	// Replaces are the names of limits that do not bind a request that this one
	// binds.
	Replaces []string
	// Unlimited admits everything. Such a limit can still replace others.
	Unlimited bool
	// Count is how many units pass in each Period, from 0. More than headgate.MaxCount means
	// headgate.MaxCount.
	Count int64
	// Period is the length of the windows, which begin at multiples of it since
	// 1970.
	Period time.Duration
}

// Tree leads from ordered descriptors to limits. It is immutable and safe for
// concurrent use; make one with [New].
type Tree struct {
	domains map[string]*level
	set     *policy.Set
	limits  []limited // in the order of the configuration
}

// limited is a limit with the nodes on the way to it, for [Tree.Explain].
type limited struct {
	domain, name string
	way          []*node
	leaf         *Leaf
}

// level has the nodes that may match one entry.
type level struct {
	exact map[entry]*node
	stars []*star
}

// entry is a name and a value, or a name and "" for any.
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
	// counted says that the entry's value is part of the key, and named that its name is part of
	// it, too.
	counted, named bool
	// exact says that the node has the entry's own value. One with stars has what they
	// stand in in its pattern: the value, or if byName the key and the value.
	exact, byName bool
	pattern       string
	star          *star // nil if there is none
	// own is what the entry must be where there is no star: name and value. As they may
	// be seen they are key and value, and path is the whole way.
	own              entry
	path, key, value string
	pos              policy.Position
	// shared says that all values which the star matches count as one, and valued that the value is
	// part of the limit's measure.
	shared, valued bool
}

// Leaf is the limit of the descriptors that end at one node. It is immutable.
type Leaf struct {
	// Rule is the rule by which they are counted. It is nil if the limit admits everything or
	// nothing.
	Rule *headgate.Rule
	// Shadow and Quota are those of the node.
	Shadow, Quota bool
	// Limit is what the node says.
	Limit
	// Replaced says that some other limit replaces this one by its Name.
	Replaced bool
	// Detailed is that of the node. Measured says that the limit is to be measured by
	// values too: see [Tree.Measure].
	Detailed, Measured bool
	// Metadata are those of the node.
	Metadata map[string]any
	// Listed is, for a limit that admits everything or nothing, the corresponding entry of a list.
	Listed *policy.ListEntry

	// Of a limit that admits nothing: what names it, and itself.
	none  *headgate.Rule
	empty *headgate.Limit
}

// Denies reports whether the limit admits nothing at all.
func (l *Leaf) Denies() bool { return !l.Unlimited && l.Count == 0 }

// Nothing is the decision at the given time of a limit that admits nothing; see Denies. No store is
// asked for it. Its reset is at the end of the window, because envoyproxy/ratelimit counts such
// limits by windows, too. Its Check is -1.
func (l *Leaf) Nothing(at headgate.Instant) headgate.Decision {
	return headgate.Decision{
		Rule: l.none, Limit: l.empty, Check: -1, Shadow: l.Shadow || l.Quota,
		RetryAfter: headgate.Never, ResetAfter: WindowLeft(l.Period, at), At: at,
	}
}

// WindowLeft is how long the window lasts that contains the given time. Windows begin at multiples
// of the period since 1970.
func WindowLeft(period time.Duration, at headgate.Instant) time.Duration {
	since := time.Duration(at) * time.Microsecond
	return period - since%period
}

// New makes the tree of the domains, and the set of its rules, to which the options apply. The
// error is a [*policy.Error] with every mistake, each at the position of its node.
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

// compiler makes levels of nodes.
type compiler struct {
	hasher   *policy.Set
	domains  map[string]*level
	placed   []placed
	names    map[string]bool // of rules
	replaced map[string]bool // of limits
	mistakes []policy.Mistake
}

// placed is a limit and the way to its node.
type placed struct {
	domain string
	way    []step
	nodes  []*node // of the way
	name   string  // of its rule
	leaf   *Leaf
}

// step is a node and its level.
type step struct {
	nodes []Node
	at    int
}

func (s step) node() *Node { return &s.nodes[s.at] }

func (p *placed) node() *Node { return p.way[len(p.way)-1].node() }

func compile(domains []Domain, opts []policy.Option) (*compiler, error) {
	// A set knows which entries are secret, and makes their hashes.
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

// merge joins domains that have the same name, in their order.
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
		d.Nodes = slices.Clip(d.Nodes) // What is appended is not the caller's.
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

// level compiles the nodes at the end of a way. The path is what rules are named
// by.
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

// leaf compiles the limit of the node at the end of a way.
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

// mode is that of the leaf's rule.
func (l *Leaf) mode() policy.Mode {
	switch {
	case l.Shadow:
		return policy.ModeShadow
	case l.Quota:
		return policy.ModeQuota
	}
	return policy.ModeEnforce
}

// describe is the node as messages name it.
func (c *compiler) describe(n *Node) string {
	if n.Value == "" {
		return fmt.Sprintf("%q", n.Key)
	}
	return fmt.Sprintf("%q with the value %q", n.Key, shown(n, c.hasher))
}
