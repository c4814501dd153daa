package app

import (
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// hits counts requests by what the policy has hit them with: a rule that warns, or an entry of a list.
// No store knows of these. It is safe for concurrent use; the zero hits are ready.
type hits struct{ counts sync.Map } // labels as in metrics → *atomic.Int64

func (h *hits) add(kind, name string) {
	of := [2]string{kind, name}
	n, known := h.counts.Load(of)
	if !known {
		n, _ = h.counts.LoadOrStore(of, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

// The kinds of hits.
const (
	hitSoft  = "soft"
	hitAllow = "allow"
	hitDeny  = "deny"
)

// decided counts an entry that has answered a request, and each rule of which an admitted request has
// reached the percentage at which it warns. The decisions of a rule are adjacent.
func (h *hits) decided(ask *decide.Ask, decisions []headgate.Decision) {
	switch {
	case ask.Denied != nil:
		h.add(hitDeny, ask.Denied.Name)
	case ask.Allowed != nil:
		h.add(hitAllow, ask.Allowed.Name)
	}
	if ask.Policy.Set == nil || len(decisions) == 0 || !ask.Policy.Warns() || !headgate.NewVerdict(decisions).Allowed {
		return
	}
	last := -1
	for i := range decisions {
		if d := &decisions[i]; d.Check != last && d.Allowed && ask.Policy.Soft(d) {
			last = d.Check
			h.add(hitSoft, d.Rule.Name())
		}
	}
}

// keep ends the series of what the policy no longer has.
func (h *hits) keep(set *policy.Set) {
	in := make(map[any]bool)
	for kind, entries := range map[string][]policy.ListEntry{hitAllow: set.Allowed(), hitDeny: set.Denied()} {
		for i := range entries {
			in[[2]string{kind, entries[i].Name}] = true
		}
	}
	h.counts.Range(func(key, _ any) bool {
		if of := key.([2]string); !in[key] && (of[0] != hitSoft || set.Rule(of[1]) == nil) {
			h.counts.Delete(key)
		}
		return true
	})
}

// collect adds the metrics.
func (h *hits) collect(m scrape) {
	h.counts.Range(func(key, n any) bool {
		of, count := key.([2]string), n.(*atomic.Int64).Load()
		if of[0] == hitSoft {
			m.counter("headgate_soft_total", "Requests that were admitted and left a limit of the rule at or above the percentage from which it warns (soft).", count, "rule", of[1])
		} else {
			m.counter("headgate_list_hits_total", "Requests that an entry of a list of the policy has answered. List: allow, deny.", count, "list", of[0], "entry", of[1])
		}
		return true
	})
}
