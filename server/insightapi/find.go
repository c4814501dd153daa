package insightapi

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/insight"
)

// Found is the answer to GET find.
type Found struct {
	// Clients are the keys that were found, or, if nothing was looked for, those of all rules that are
	// limited most.
	Clients []Client `json:"clients"`
	// Lists are the entries of the allow and deny lists that name what was looked for.
	Lists []string `json:"lists"`
	// More says that there are more keys.
	More      bool       `json:"more"`
	Instances []Instance `json:"instances"`
}

// Client is one key of one rule.
type Client struct {
	Rule string       `json:"rule"`
	Key  insight.Name `json:"key"`
	Tier string       `json:"tier,omitempty"`
	// Known is what the table of subjects has of the client, or "".
	Known string `json:"known,omitempty"`
	// Denied counts its denials, and Away its requests that the store did not decide. Both may be too
	// high by Error.
	Denied int64 `json:"denied"`
	Away   int64 `json:"away,omitempty"`
	Error  int64 `json:"error"`
	// Used counts the units that it was charged. It is known of keys that were looked for.
	Used int64 `json:"used,omitempty"`
	// Since and Last are those of [insight.Key], of its denials, or else of its other requests.
	Since int64 `json:"since,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Unseen says that no instance has counted the key lately.
	Unseen bool `json:"unseen,omitempty"`
}

// topRules is how many rules the clients come from that are limited most.
const topRules = 50

// find answers which keys belong to a client: an address, a value, a secret or what the table of
// subjects has of it. Without any, it answers who is limited most.
func (h *Handler) find(q *query) (any, *failure) {
	// What is looked for may be a secret, which does not belong into the address of a request.
	var body struct {
		Q string `json:"q"`
	}
	if err := q.decode(&body); err != nil {
		return nil, wrong(http.StatusBadRequest, "the body must be an object with q: an address, a key, a part of one, or what the table of subjects has of a client")
	}
	what := strings.TrimSpace(body.Q)
	if len(what) > policy.MaxValue {
		return nil, wrong(http.StatusBadRequest, "q is longer than any value of an entry")
	}
	if what == "" {
		return h.most(q)
	}
	p := h.o.Policy()
	own := h.o.Recorder.Find(func(rule, key string) bool { return belongs(p, rule, key, what) }, maxLimit)
	parts, instances := ask[[]insight.KeyCounts](h, q)
	return h.whole(q, own, func() any {
		for _, part := range parts {
			for _, c := range part {
				if i := slices.IndexFunc(own, func(o insight.KeyCounts) bool { return o.Rule == c.Rule && o.Key.Raw == c.Key.Raw }); i >= 0 {
					own[i].Merge(c)
				} else {
					own = append(own, c)
				}
			}
		}
		out := Found{Clients: []Client{}, Lists: listed(p, what), Instances: instances}
		for i := range own {
			out.Clients = append(out.Clients, clientOf(p, &own[i]))
		}
		for _, key := range unseen(p, what) {
			if !slices.ContainsFunc(out.Clients, func(c Client) bool { return c.Rule == key.Rule && c.Key.Raw == key.Key.Raw }) {
				out.Clients = append(out.Clients, key)
			}
		}
		return out.first(q.limit)
	})
}

// most answers which clients of all rules are limited most.
func (h *Handler) most(q *query) (any, *failure) {
	own := h.o.Recorder.Tops(q.of, topRules)
	parts, instances := ask[[]insight.RuleTop](h, q)
	for _, part := range parts {
		own = insight.MergeTops(own, part)
	}
	return h.whole(q, own, func() any {
		p := h.o.Policy()
		out := Found{Clients: []Client{}, Lists: []string{}, Instances: instances}
		for i := range own {
			t := &own[i]
			nameKeys(p, t.Rule, &t.Denied, &t.Away)
			places := make(map[string]int)
			for _, k := range t.Denied.Keys {
				places[k.Key.Raw] = len(out.Clients)
				out.Clients = append(out.Clients, Client{Rule: t.Rule, Key: k.Key, Tier: k.Tier, Known: k.Known, Denied: k.Count, Error: k.Error, Since: k.Since, Last: k.Last})
			}
			for _, k := range t.Away.Keys {
				at, ok := places[k.Key.Raw]
				if !ok {
					at = len(out.Clients)
					out.Clients = append(out.Clients, Client{Rule: t.Rule, Key: k.Key, Tier: k.Tier, Known: k.Known, Error: k.Error, Since: k.Since, Last: k.Last})
				}
				out.Clients[at].Away = k.Count
			}
		}
		return out.first(q.limit)
	})
}

// first keeps so many clients, those that are limited most.
func (f Found) first(most int) Found {
	slices.SortStableFunc(f.Clients, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Denied+b.Away, a.Denied+a.Away), cmp.Compare(b.Used, a.Used), strings.Compare(a.Rule, b.Rule))
	})
	f.More = len(f.Clients) > most
	f.Clients = f.Clients[:min(len(f.Clients), most)]
	return f
}

func clientOf(p decide.Policy, c *insight.KeyCounts) Client {
	out := Client{Rule: c.Rule, Key: c.Key, Tier: c.Tier, Known: known(p, c.Rule, c.Key.Raw)}
	for _, k := range []*insight.Key{c.Use, c.Away, c.Denied} { // The last one says since when.
		if k != nil {
			out.Since, out.Last, out.Error = k.Since, k.Last, k.Error
		}
	}
	if c.Use != nil {
		out.Used = c.Use.Count
	}
	if c.Away != nil {
		out.Away = c.Away.Count
	}
	if c.Denied != nil {
		out.Denied = c.Denied.Count
	}
	return out
}

// belongs reports whether the key of a rule is that of the client: it has the value, its hash, a
// network with the address, or the text, or the table of subjects has the text for it.
func belongs(p decide.Policy, rule, key, what string) bool {
	conditions, _ := p.Set.KeyMatch(rule, key)
	address, err := netip.ParseAddr(what)
	for _, c := range conditions {
		switch {
		case slices.Contains(c.Hashes, what), len(c.Hashes) > 0 && slices.Contains(c.Hashes, p.Set.Hash(c.Entry, what)):
			return true
		case err == nil && slices.ContainsFunc(c.Networks, func(n netip.Prefix) bool { return n.Contains(address.Unmap()) }):
			return true
		case err == nil && slices.ContainsFunc(c.Equals, func(v string) bool {
			own, err := netip.ParseAddr(v)
			return err == nil && own.Unmap() == address.Unmap()
		}):
			return true
		}
	}
	// An address stands for itself, and not for all that begin with the same digits.
	return err != nil && (contains(key, what) || contains(known(p, rule, key), what))
}

func contains(text, what string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(what))
}

// unseen returns the keys that the client would have under rules with one entry, and under those by
// address only if it is one.
func unseen(p decide.Policy, what string) (list []Client) {
	_, err := netip.ParseAddr(what)
	rules := p.Rules()
	for i := range rules {
		r := &rules[i]
		if len(r.Per) != 1 || (r.Per[0].Entry == policy.AddressEntry) != (err == nil) || len(list) == alikeRules {
			continue
		}
		// What is no address may be a part of a name: only the table of subjects and secrets tell that it
		// is all of one.
		if c, err := p.Set.Check(r.Name, what, 1); err == nil && (r.Per[0].Entry == policy.AddressEntry || p.Set.Client(r.Name, c.Key) != nil) {
			list = append(list, Client{Rule: r.Name, Key: insight.Name{Raw: c.Key}, Known: known(p, r.Name, c.Key), Unseen: true})
		}
	}
	return list
}

// listed returns the entries of the lists that name the client.
func listed(p decide.Policy, what string) []string {
	names := []string{}
	add := func(list string, entries []policy.ListEntry) {
		for i := range entries {
			names = append(names, list+entries[i].Name)
		}
	}
	holds := func(entries []policy.ListEntry) []policy.ListEntry {
		return slices.DeleteFunc(slices.Clone(entries), func(e policy.ListEntry) bool {
			return p.Set.Ended(e.Until) || !slices.ContainsFunc(e.Match, func(c policy.Condition) bool { return p.Set.Names(&c, what) })
		})
	}
	add("deny list: ", holds(p.Set.Denied()))
	add("allow list: ", holds(p.Set.Allowed()))
	return names
}
