package nested

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// Facts are the limits of domains as rules that match descriptors of facts, as
// [Flatten] makes them: the rules of a policy, and its lists.
type Facts struct {
	Rules       []policy.Rule
	Allow, Deny []policy.ListEntry
	// Lost is what could not be said, each at the Pos of its node.
	Lost []policy.Mistake

	without map[string]bool // the names of limits that are left out
}

// Rules writes the limits of the domains as rules. They have the names that the
// rules of [New] have, and count under the same keys, so that what was used stays
// used when one takes the place of the other. The options and the error are those
// of New.
func Rules(domains []Domain, opts ...policy.Option) (Facts, error) {
	c, err := compile(domains, opts)
	if err != nil {
		return Facts{}, err
	}
	var f Facts
	for i := range c.placed {
		f.add(&c.placed[i])
	}
	f.replace(c.placed)
	return f, nil
}

// replace has each rule replace those of its domain that have one of the names in
// its Replaces, and notes what lists cannot do of that.
func (f *Facts) replace(all []placed) {
	rules := make(map[string]int, len(f.Rules))
	for i := range f.Rules {
		rules[f.Rules[i].Name] = i
	}
	type limit struct{ domain, name string }
	named := make(map[limit][]*placed)
	for i := range all {
		if p := &all[i]; p.leaf.Name != "" {
			at := limit{p.domain, p.leaf.Name}
			named[at] = append(named[at], p)
		}
	}
	for i := range all {
		p := &all[i]
		if len(p.leaf.Replaces) == 0 || f.without[p.name] {
			continue
		}
		by, isRule := rules[p.name]
		if !isRule {
			f.lose(p, "replaces %s: it is no rule but an entry of a list, since it admits everything or nothing, and those replace nothing", strings.Join(p.leaf.Replaces, ", "))
			continue
		}
		var names []string
		for _, name := range p.leaf.Replaces {
			for _, other := range named[limit{p.domain, name}] {
				switch _, ok := rules[other.name]; {
				case ok && !slices.Contains(names, other.name):
					names = append(names, other.name)
				case other.leaf.Denies() && !f.without[other.name]:
					f.lose(p, "replaces %s: that is an entry of the deny list, since it admits nothing, and it stays in force", name)
				}
			}
		}
		if len(names) > policy.MaxReplaces {
			f.lose(p, "replaces %d limits, and a rule may replace %d; the others stay in force", len(names), policy.MaxReplaces)
			names = names[:policy.MaxReplaces]
		}
		f.Rules[by].Replaces = names
	}
}

func (f *Facts) lose(p *placed, format string, args ...any) {
	f.Lost = append(f.Lost, policy.Mistake{Index: -1, Rule: p.name, Pos: p.node().Pos, Text: fmt.Sprintf(format, args...)})
}

// leave notes a limit that is left out as a whole.
func (f *Facts) leave(p *placed, format string, args ...any) {
	if f.without == nil {
		f.without = make(map[string]bool)
	}
	f.without[p.name] = true
	f.lose(p, format, args...)
}

// add writes one limit.
func (f *Facts) add(p *placed) {
	match, per, lost := p.conditions()
	if lost != "" {
		f.leave(p, "%s", lost)
		return
	}
	if p.leaf.Quota {
		f.lose(p, "quota_mode is written as shadow: the metadata tell of the excess by the rule's name in shadow_denied, and not by the descriptor's place in quotaModeViolations")
	}
	if p.leaf.Measured {
		f.lose(p, "detailed_metric or value_to_metric is left out: rules are measured by their names")
	}
	pos := p.node().Pos
	switch {
	case p.leaf.Unlimited:
		f.Allow = append(f.Allow, policy.ListEntry{Name: p.name, Match: match, Pos: pos})
	case p.leaf.Rule != nil:
		f.Rules = append(f.Rules, policy.Rule{Name: p.name, Match: match, Per: per, Limits: p.leaf.Rule, Mode: p.leaf.mode(), Pos: pos})
	case p.leaf.mode() == policy.ModeShadow:
		f.leave(p, "a limit of nothing that denies nobody is left out")
	default:
		f.Deny = append(f.Deny, policy.ListEntry{Name: p.name, Match: match, Pos: pos})
	}
}

// conditions are those under which a descriptor arrives at the node, and the
// parts of its key. The conditions on values come first: those are what an index
// tells the rules apart by.
func (p *placed) conditions() (match []policy.Condition, per []policy.Part, lost string) {
	d := make(policy.Descriptor, len(p.way))
	for i, s := range p.way {
		d[i].Name = s.node().Key
	}
	flat := Flatten(nil, p.domain, d)
	for i, s := range p.way {
		n, name := s.node(), flat[2+i].Name
		prefix, starred := strings.CutSuffix(n.Value, Star)
		if n.Value == "" && strings.HasSuffix(n.Key, Star) {
			return nil, nil, fmt.Sprintf("the key %q ends in a star, and rules know their entries by whole names", n.Key)
		}
		other, reached := s.others()
		if !reached {
			return nil, nil, "no descriptor arrives here: a value with a star before it takes them all"
		}
		other.Entry = name
		switch {
		case n.Value == "" || starred && prefix == "":
		case starred:
			match = append(match, policy.Prefix(name, prefix))
		default:
			match = append(match, policy.Equal(name, n.Value))
		}
		if len(other.Equals)+len(other.Prefixes) > 0 {
			match = append(match, other)
		}
		if n.Value == "" || starred && !n.Share {
			per = append(per, policy.Part{Entry: name})
		}
	}
	return append(match, policy.Equal(NamesEntry, flat[1].Value), policy.Equal(DomainEntry, p.domain)), per, ""
}

// others is the condition that no node goes before this one: none with its own
// value, and none with a star that stands before it. It reports false if one of
// those takes everything.
func (s step) others() (policy.Condition, bool) {
	not := policy.Condition{Not: true}
	n := s.node()
	prefix, starred := strings.CutSuffix(n.Value, Star)
	if n.Value != "" && !starred {
		return not, true
	}
	for i := range s.nodes {
		o := &s.nodes[i]
		if names, byName := strings.CutSuffix(o.Key, Star); byName && o.Value == "" && strings.HasPrefix(n.Key, names) && (i < s.at || !starred) {
			return not, false
		}
		if i == s.at || o.Key != n.Key || o.Value == "" {
			continue
		}
		theirs, alsoStarred := strings.CutSuffix(o.Value, Star)
		switch {
		case !alsoStarred:
			if strings.HasPrefix(o.Value, prefix) {
				not.Equals = append(not.Equals, o.Value)
			}
		case starred && i > s.at:
			// It comes after this one.
		case strings.HasPrefix(prefix, theirs):
			return not, false
		case strings.HasPrefix(theirs, prefix):
			not.Prefixes = append(not.Prefixes, theirs)
		}
	}
	return not, true
}
