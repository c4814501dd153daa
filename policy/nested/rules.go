package nested

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate/policy"
)

// Facts are the limits of domains, converted to rules of a policy and entries of its lists. They
// match the descriptors that [Flatten] makes.
type Facts struct {
	Rules       []policy.Rule
	Allow, Deny []policy.ListEntry
	// Lost says what rules and lists cannot express, with the positions of the nodes.
	Lost []policy.Mistake
}

// Rules converts the limits of the domains to rules. They have the names of the rules that [New]
// makes, and count under the same keys. So when one form replaces the other, the counters keep what
// has been used. The options and the error are those of New.
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

// replace sets, for each rule and each entry of a list, which others of its domain it replaces.
func (f *Facts) replace(all []placed) {
	// replaces has, by the name of each rule and each entry, the list of what it replaces. limiting
	// has those names that can be replaced: entries of the allow list limit nothing.
	replaces, limiting := make(map[string]*[]string), make(map[string]bool)
	for i := range f.Rules {
		replaces[f.Rules[i].Name], limiting[f.Rules[i].Name] = &f.Rules[i].Replaces, true
	}
	for i := range f.Deny {
		replaces[f.Deny[i].Name], limiting[f.Deny[i].Name] = &f.Deny[i].Replaces, true
	}
	for i := range f.Allow {
		replaces[f.Allow[i].Name] = &f.Allow[i].Replaces
	}
	type limit struct{ domain, name string }
	named := make(map[limit][]string)
	for i := range all {
		if p := &all[i]; p.leaf.Name != "" && limiting[p.name] {
			at := limit{p.domain, p.leaf.Name}
			named[at] = append(named[at], p.name)
		}
	}
	for i := range all {
		p := &all[i]
		into := replaces[p.name]
		if into == nil {
			continue // The limit was left out.
		}
		var names []string
		seen := make(map[string]bool)
		for _, name := range p.leaf.Replaces {
			if !seen[name] {
				seen[name] = true
				names = append(names, named[limit{p.domain, name}]...)
			}
		}
		if len(names) > policy.MaxReplaces {
			f.lose(p, "replaces %d limits, and a rule may replace %d: the others stay in force; give fewer limits the names that it replaces", len(names), policy.MaxReplaces)
			names = names[:policy.MaxReplaces]
		}
		*into = names
	}
}

func (f *Facts) lose(p *placed, format string, args ...any) {
	f.Lost = append(f.Lost, policy.Mistake{Index: -1, Rule: p.name, Pos: p.node().Pos, Text: fmt.Sprintf(format, args...)})
}

// add adds the rule or the entry for one limit, and adds to Lost what neither can express.
func (f *Facts) add(p *placed) {
	match, per, lost := p.conditions()
	if lost != "" {
		f.lose(p, "%s", lost)
		return
	}
	if p.leaf.Measured {
		f.lose(p, "detailed_metric or value_to_metric is left out: rules are measured by their names; give a value a descriptor of its own to have it measured")
	}
	pos := p.node().Pos
	switch {
	case p.leaf.Unlimited:
		f.Allow = append(f.Allow, policy.ListEntry{Name: p.name, Match: match, Pos: pos})
	case p.leaf.Rule != nil:
		f.Rules = append(f.Rules, policy.Rule{Name: p.name, Match: match, Per: per, Limits: p.leaf.Rule, Mode: p.leaf.mode(), Pos: pos})
	case p.leaf.mode() == policy.ModeEnforce:
		f.Deny = append(f.Deny, policy.ListEntry{Name: p.name, Match: match, Pos: pos})
	default:
		f.nothing(p, match)
	}
}

// nothing handles a limit of zero in shadow or quota mode, which denies nobody. If the limit
// replaces others, it becomes an entry of the allow list; otherwise it is left out.
func (f *Facts) nothing(p *placed, match []policy.Condition) {
	mode, tells := "shadow_mode", ""
	if !p.leaf.Shadow {
		mode, tells = "quota_mode", ", and quotaModeViolations does not list it"
	}
	const instead = "; leave the limit out, or give it one request"
	if len(p.leaf.Replaces) == 0 {
		f.lose(p, "a limit of zero in %s is left out, since it neither denies nor counts: its status has no current_limit%s%s", mode, tells, instead)
		return
	}
	f.Allow = append(f.Allow, policy.ListEntry{Name: p.name, Match: match, Pos: p.node().Pos})
	f.lose(p, "a limit of zero in %s is written as an entry of the allow list, so that it still replaces others: its status says that 4294967295 remain, and not 0%s%s", mode, tells, instead)
}

// conditions returns the conditions under which a descriptor leads to the node, and the parts of
// its key. If rules cannot express them, lost is the reason, for Lost. The conditions on values
// come first, because the index tells rules apart by them.
func (p *placed) conditions() (match []policy.Condition, per []policy.Part, lost string) {
	d := make(policy.Descriptor, len(p.way))
	for i, s := range p.way {
		d[i].Name = s.node().Key
	}
	flat := Flatten(nil, p.domain, d)
	for i, s := range p.way {
		n, name := s.node(), flat[2+i].Name
		own := newStar(n.Key, n.Value)
		if own.name.starred() {
			return nil, nil, fmt.Sprintf("the limit is left out: the key %q has a star, and rules know their entries by whole names; write a descriptor for each key that requests have", n.Key)
		}
		prefix, begins := own.value.prefix()
		if n.Value != "" && own.value.starred() && !begins {
			return nil, nil, fmt.Sprintf("the limit is left out: the value %q has a star before its end, and rules know values by their beginnings; write a descriptor for each value, or for what the values begin with", p.nodes[i].value)
		}
		other, lost := s.others()
		if lost != "" {
			return nil, nil, "the limit is left out: " + lost
		}
		other.Entry = name
		switch {
		case n.Value == "" || begins && prefix == "":
		case begins:
			match = append(match, policy.Prefix(name, prefix))
		default:
			match = append(match, policy.Equal(name, n.Value))
		}
		if len(other.Equals)+len(other.Prefixes) > 0 {
			match = append(match, other)
		}
		if n.Value == "" || begins && !n.Share {
			per = append(per, policy.Part{Entry: name})
		}
	}
	return append(match, policy.Equal(NamesEntry, flat[1].Value), policy.Equal(DomainEntry, p.domain)), per, ""
}

// others returns the condition that the entry leads to no other node of the level that comes before
// this one: neither to a node with the entry's own value, nor to a node with a star that stands
// before this one. If a rule cannot express it, lost is the reason.
func (s step) others() (not policy.Condition, lost string) {
	not.Not = true
	n := s.node()
	own := newStar(n.Key, n.Value)
	if !own.value.starred() {
		return not, ""
	}
	for i := range s.nodes {
		o := &s.nodes[i]
		theirs := newStar(o.Key, o.Value)
		starred := theirs.name.starred() || theirs.value.starred() && o.Value != ""
		switch {
		case i == s.at, !theirs.name.matches(n.Key), theirs.value.apart(own.value):
			continue
		case starred && n.Value != "" && i > s.at, !starred && o.Value == "":
			continue // This one comes before it.
		case theirs.value.covers(own.value):
			return not, "no descriptor arrives here, since a value or a key with a star before it takes them all; remove it, or move it up"
		}
		prefix, begins := theirs.value.prefix()
		switch {
		case !theirs.value.starred():
			not.Equals = append(not.Equals, o.Value)
		case begins:
			not.Prefixes = append(not.Prefixes, prefix)
		default:
			return not, "values with a star before their end lead elsewhere, which rules cannot say, since they know values by their beginnings; write a descriptor for each of those values, or for what they begin with"
		}
	}
	return not, ""
}

// The entries that [Flatten] adds.
const (
	// DomainEntry has the domain.
	DomainEntry = "domain"
	// NamesEntry has the names of the ordered descriptor's entries, in their order, joined by "|".
	NamesEntry = "descriptor"
	// AddressEntry has the value of the entry RemoteAddress, unless the ordered descriptor has an
	// entry with the name AddressEntry.
	AddressEntry = "ip"
	// RemoteAddress is the name under which Envoy sends the client's address.
	RemoteAddress = "remote_address"
)

// Flatten converts an ordered descriptor to a descriptor of facts, and appends it to dst: the
// domain, the names in their order, and then each entry under its name. In a name, characters that
// the names of entries in policies cannot have become "_", and a name that is too long is cut. If a
// name occurs again, it gets a number: the second "user" is "user:2".
func Flatten(dst policy.Descriptor, domain string, d policy.Descriptor) policy.Descriptor {
	begin := len(dst)
	dst = append(dst, policy.Entry{Name: DomainEntry, Value: domain}, policy.Entry{Name: NamesEntry, Value: joinNames(d)})
	for i := range d {
		name := entryName(d[i].Name)
		if has(dst[begin:], name) {
			name = numbered(dst[begin:], name)
		}
		dst = append(dst, policy.Entry{Name: name, Value: d[i].Value})
	}
	if !has(dst[begin:], AddressEntry) {
		for i := range d {
			if d[i].Name == RemoteAddress {
				return append(dst, policy.Entry{Name: AddressEntry, Value: d[i].Value})
			}
		}
	}
	return dst
}

// joinNames returns the value of NamesEntry.
func joinNames(d policy.Descriptor) string {
	if len(d) == 1 {
		return d[0].Name
	}
	var space [192]byte
	names := space[:0]
	for i := range d {
		if i > 0 {
			names = append(names, '|')
		}
		names = appendEscaped(names, d[i].Name)
	}
	return string(names)
}

// has reports whether there is an entry with the name, whatever its value is.
func has(d policy.Descriptor, name string) bool {
	return slices.ContainsFunc(d, func(e policy.Entry) bool { return e.Name == name })
}

// entryName converts a name to one that an entry in a policy can have.
func entryName(name string) string {
	if clean(name) {
		return name
	}
	made := []byte(name[:min(len(name), policy.MaxName)])
	for i, c := range made {
		if !inName(c) {
			made[i] = '_'
		}
	}
	if len(made) == 0 {
		return "_"
	}
	return string(made)
}

func clean(name string) bool {
	for i := range len(name) {
		if !inName(name[i]) {
			return false
		}
	}
	return name != "" && len(name) <= policy.MaxName
}

func inName(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		return true
	}
	return false
}

// numbered returns the first of the names "name:2", "name:3" … that no entry of d has. A long name
// is cut to make room.
func numbered(d policy.Descriptor, name string) string {
	const room = 3 // for ":" and a number, which is at most policy.MaxEntries
	for n := 2; ; n++ {
		if made := name[:min(len(name), policy.MaxName-room)] + ":" + strconv.Itoa(n); !has(d, made) {
			return made
		}
	}
}
