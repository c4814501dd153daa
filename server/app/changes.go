package app

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
)

// maxChanges is how many changes of a policy are remembered, and maxDiffering how many
// rules of each.
const (
	maxChanges   = 50
	maxDiffering = 100
)

// changes has the last changes of a policy. It is safe for concurrent use.
type changes struct {
	mu   sync.Mutex
	list []insightapi.Change // the newest first
}

// add adds a change, whose time is now.
func (h *changes) add(c insightapi.Change) {
	c.At = time.Now().UnixMilli()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == maxChanges {
		h.list = h.list[:maxChanges-1]
	}
	h.list = slices.Insert(h.list, 0, c)
}

// last are the changes that are remembered, the newest first.
func (h *changes) last() []insightapi.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}

// difference is the change from one version of the rules to the next.
func difference(before *policy.Set, after decide.Policy, because string) insightapi.Change {
	c := insightapi.Change{Version: after.Version, Hash: after.Hash, Because: because}
	old, now := before.Rules(), after.Rules()
	for i := range now {
		was := before.Rule(now[i].Name)
		switch {
		case was == nil:
			c.Added = append(c.Added, now[i].Name)
		case !sameRule(*was, now[i]):
			c.Changed = append(c.Changed, insightapi.RuleChanged{Rule: now[i].Name, Before: inWords(before, was), After: inWords(after.Set, &now[i])})
		}
	}
	for i := range old {
		if after.Rule(old[i].Name) == nil {
			c.Removed = append(c.Removed, old[i].Name)
		}
	}
	c.Added, c.Removed = c.Added[:min(len(c.Added), maxDiffering)], c.Removed[:min(len(c.Removed), maxDiffering)]
	c.Changed = c.Changed[:min(len(c.Changed), maxDiffering)]
	return c
}

// sameRule compares two rules, wherever they were written.
func sameRule(a, b policy.Rule) bool {
	a.Pos, b.Pos = policy.Position{}, policy.Position{}
	a.Overrides, b.Overrides = withoutPlaces(a.Overrides), withoutPlaces(b.Overrides)
	return reflect.DeepEqual(a, b)
}

func withoutPlaces(list []policy.Override) []policy.Override {
	list = slices.Clone(list)
	for i := range list {
		list[i].Pos = policy.Position{}
	}
	return list
}

// inWords describes a rule of the set in one line, with what people look for when a rule has
// changed. It contains no secrets.
func inWords(set *policy.Set, r *policy.Rule) string {
	var limits []string
	add := func(of string, shown []string) {
		limits = append(limits, of+strings.Join(shown, ", "))
	}
	if t := r.Tariff; t != nil {
		for i := range t.Tiers {
			add(policy.Quote(tierName(set, t, i))+": ", limitTexts(t.Tiers[i].Limits))
		}
		if t.Other != nil {
			add("others: ", limitTexts(t.Other))
		}
	} else {
		add("", limitTexts(r.Limits))
	}
	text := strings.Join(limits, "; ")
	if n := len(r.Overrides); n > 0 {
		// Conditions may name clients, so they are not shown. The last override is the one that was
		// most probably added.
		text += ", " + strconv.Itoa(n) + " override"
		if n > 1 {
			text += "s"
		}
		if last := r.Overrides[n-1].Limits; last != nil {
			text += " (" + strings.Join(limitTexts(last), ", ") + ")"
		}
	}
	if r.Mode != policy.ModeEnforce {
		text += ", mode " + r.Mode.String()
	}
	if len(r.Per) > 0 {
		names := make([]string, len(r.Per))
		for i := range r.Per {
			names[i] = r.Per[i].Entry
		}
		text += ", per " + strings.Join(names, ", ")
	}
	return text
}
