package app

import (
	"cmp"
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/candidate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

// insights knows which keys use the rules most, and which are denied.
type insights struct {
	*insight.Recorder
	store insight.Latency
	file  *history.File // that the history is kept in; nil without one
}

// newInsights makes the insights, or returns nil if the settings do not want any.
func (a *App) newInsights() *insights {
	if a.settings.NoInsight {
		return nil
	}
	i := &insights{Recorder: insight.New(insight.Options{Tier: a.source.tierOf})}
	if path := a.settings.History; path != "" && !strings.Contains(path, "://") {
		i.file = history.Open(path, i.Recorder, a.settings.Logger)
	}
	return i
}

// history is where the past is read from, or nil.
func (a *App) history() history.Reader {
	switch {
	case a.insights.file != nil:
		return a.insights.file
	case a.settings.History != "":
		return history.NewPrometheus(a.settings.History, a.peers)
	}
	return nil
}

// tierOf returns the tier whose limits these are, or another name for them, such as that of an
// override; "" if it is not known. Limits are identified by their address. A decision that was made
// before a reload has limits of the previous policy.
func (s *source) tierOf(limits *headgate.Rule) string {
	for _, p := range []*decide.Policy{s.active.Load(), s.before.Load()} {
		if p == nil || p.Set == nil {
			continue
		}
		if tier, ok := tierIn(p.Set, limits); ok {
			return tier
		}
	}
	return ""
}

// tierIn returns the tier of the limits, if they belong to this set.
func tierIn(set *policy.Set, limits *headgate.Rule) (tier string, ok bool) {
	rule := set.Rule(limits.Name())
	if rule == nil {
		return "", false
	}
	for i := range rule.Overrides {
		if rule.Overrides[i].Limits == limits {
			return "override", true
		}
	}
	t := rule.Tariff
	if t == nil {
		return "", rule.Limits == limits
	}
	for i := range t.Tiers {
		if t.Tiers[i].Limits == limits {
			return tierName(set, t, i), true
		}
	}
	return "*", t.Other == limits
}

// tierName is the name under which a tier is shown: its value, or the hash of a secret.
func tierName(set *policy.Set, t *policy.Tariff, tier int) string {
	if value := t.Tiers[tier].Value; !set.Secret(t.Entry) {
		return value
	}
	return set.Hash(t.Entry, t.Tiers[tier].Value)
}

// limitTexts are the limits as they are written in rules.
func limitTexts(rule *headgate.Rule) []string {
	list := make([]string, len(rule.Limits()))
	for i := range list {
		list[i] = rule.Limits()[i].String()
	}
	return list
}

// insightAPI returns the handler that answers questions about usage, or nil without insights.
func (a *App) insightAPI() *insightapi.Handler {
	if a.insights == nil {
		return nil
	}
	store := a.decisive()
	o := insightapi.Options{
		Recorder: a.insights.Recorder, Name: a.settings.instance(), Policy: a.Policy,
		Take: func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error) {
			return store.Take(ctx, op, checks, nil)
		},
		Store: a.storeStatus, Changes: a.source.changes.last, Audit: &a.audit, Gates: a.gates,
		History: a.history(), Uses: a.uses, Permits: a.permits, OwnPermits: a.ownsStore(),
	}
	if a.without != nil {
		o.Outage, o.Outages = a.outage, a.without.log.last
	}
	a.audit.Logger = a.settings.Logger
	if a.trial != nil {
		o.Candidate = func() candidate.Report { return a.trial.report(true) }
	}
	if len(a.settings.Peers) > 0 {
		o.Peers = &insightapi.Peers{URLs: a.settings.Peers, Token: a.settings.AdminToken, Client: a.peers}
	}
	if len(a.settings.Consumers) > 0 {
		o.Consumers = &insightapi.Consumers{URLs: a.settings.Consumers, Client: a.peers}
	}
	return insightapi.New(o)
}

// insightPaths returns the handlers for administrators; nil if there are none.
func (a *App) insightPaths() httpapi.Insight {
	if a.insights == nil {
		return nil
	}
	return a.answers
}

// instance is the name of this instance, for people.
func (s *Settings) instance() string {
	if s.Instance != "" {
		return s.Instance
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return s.Listen
}

// gates returns everything that bounds how much is in progress: rules, the bounds in the gateway's
// file, and the adaptive limits of its upstreams.
func (a *App) gates() []insightapi.Gate {
	list := []insightapi.Gate{}
	add := func(name, kind string, s flow.Stats) {
		var rejected uint64
		for _, n := range s.Rejected {
			rejected += n
		}
		list = append(list, insightapi.Gate{
			Name: name, Kind: kind, Limit: s.Limit, Held: s.InUse, Keys: s.Keys, Waiting: s.Waiting, Rejected: int64(min(rejected, math.MaxInt64)),
		})
	}
	shared := make(map[string]bool)
	for _, s := range a.keeper.Stats() {
		shared[s.Rule] = s.Shared
		if a.gated == nil {
			s.Stats.Rejected = s.Refused
			add(s.Rule, kindOf(s.Shared), s.Stats)
		}
	}
	if a.gated != nil {
		for name, s := range a.gated.Gates() {
			add(name, kindOf(shared[name]), s)
		}
		for name, s := range a.gated.Adaptive() {
			add(name, "adaptive", s)
		}
	}
	slices.SortFunc(list, func(a, b insightapi.Gate) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
	})
	return list
}

// uses are the keys of which most is in progress here, so many at most, and how many others
// there are.
func (a *App) uses(most int) (list []insightapi.Use, more int64) {
	keepers := []*inprogress.Keeper{a.keeper}
	if a.gated != nil {
		keepers = a.gated.Keepers()
	}
	for _, keeper := range keepers {
		for _, s := range keeper.Stats() {
			of := flow.Uses{Most: most}
			shared := keeper.Uses(s.Rule, &of)
			for _, u := range of.List {
				list = append(list, insightapi.Use{Rule: s.Rule, Key: u.Key, Shared: shared, Limit: s.Limit, InUse: u.InUse, Waiting: u.Waiting})
			}
			more += of.More
		}
	}
	slices.SortFunc(list, func(a, b insightapi.Use) int {
		return cmp.Or(cmp.Compare(b.InUse, a.InUse), cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	if n := len(list); n > most {
		list, more = list[:most], more+int64(n-most)
	}
	return list, more
}

// ownsStore reports whether the counters are in the memory of this process.
func (a *App) ownsStore() bool {
	_, own := a.store.Store.(*memory.Store)
	return own
}

func kindOf(shared bool) string {
	if shared {
		return "shared permits"
	}
	return "permits"
}

// storeStatus says how the store is doing.
func (a *App) storeStatus(of insight.Range) insightapi.Store {
	out := insightapi.Store{Name: a.StoreName(), State: "ok", StoreReport: a.insights.store.Report(time.Now(), of), Figures: []insightapi.Figure{}}
	if a.layers == nil {
		return out
	}
	group := ""
	add := func(name string, value int64, help string) {
		out.Figures = append(out.Figures, insightapi.Figure{Group: group, Name: name, Value: value, Help: help})
	}
	out.Region = a.layers.regions.status(a.settings.Region)
	s := a.without.Stats()
	if o := a.outage(); o != nil {
		out.State = o.State
	}
	group = "Breaker"
	add("opened", s.Opened, "How often the breaker has opened.")
	add("failures", s.Failures, "Calls that failed although the store was asked.")
	add("probes failed", s.ProbesFailed, "Probes of a store that did not answer.")
	add("nodes", s.Nodes, "Servers that share the store.")
	group = "Without the store"
	add("refused", s.Refused, "Requests that got no decision.")
	add("let in", s.Open, "Requests that were let in without a decision.")
	add("local", s.Local, "Requests that were decided by this server's share.")
	add("debts", int64(s.Debts), "Keys of which units that were admitted locally are still to be charged.")
	add("debts dropped", s.DebtsDropped, "Local admissions that will not be charged.")
	add("handed back", s.HandedBack, "Units that were charged afterwards.")
	group = "Leases"
	l := a.layers.lease.Stats()
	add("keys", int64(l.Keys), "Keys of which units are taken in advance.")
	add("held", l.Held, "Units that were taken in advance and are not used yet.")
	add("served", l.Served, "Checks that were admitted with such units.")
	add("lost", l.Lost, "Units that were neither used nor given back.")
	group = "Asynchronous rules"
	r := a.layers.async.Stats()
	add("keys", r.Keys, "Keys that are decided from memory.")
	add("unreported", r.Unreported, "Units that the store does not know of yet.")
	add("reports failed", r.Failed, "Reports that the store did not answer.")
	group = "Deny cache"
	d := a.layers.denials.Stats()
	listening := int64(0)
	if d.Listening {
		listening = 1
	}
	add("keys", d.Keys, "Denials that are remembered.")
	add("listening", listening, "1 while messages of the other servers arrive.")
	return out
}

// seen returns a decider for a door that counts the door's requests and, with insights, records
// them.
func (a *App) seen(decider decide.Decider, door string) decide.Decider {
	var to *insight.Door
	if a.insights != nil {
		to = a.insights.Door(door)
	}
	return a.requests.door(decider, a.Policy, door, to)
}

// collect adds the metrics of the insights.
func (a *App) collectInsights(m scrape) {
	i, set := a.insights, a.Policy().Set
	bytes, left := i.Memory()
	const help = "What was left out of what is known of keys. What: decisions (of rules that there was no memory for), events (denials of a key that had one within the same second)."
	m.gauge("headgate_insight_bytes", "Memory of what is known of keys, which is bounded.", float64(bytes))
	m.counter("headgate_insight_left_out_total", help, left.Decisions, "what", "decisions")
	m.counter("headgate_insight_left_out_total", help, left.Events, "what", "events")
	for rule, c := range i.Checks() {
		if set.Rule(rule) == nil {
			continue // A caller has brought it along, or the policy no longer has it.
		}
		for _, of := range []part{{"allowed", c.Allowed}, {"denied", c.Denied}, {"shadow", c.Shadow}, {"uncharged", c.Uncharged}, {"failed", c.Failed}} {
			m.counter("headgate_rule_checks_total", "Requests that a rule bound, each once, however many limits the rule has. Outcome: allowed (charged), denied, shadow (it is on trial and would have denied), uncharged (another rule denied), failed (no decision).", of.n, "rule", rule, "outcome", of.value)
		}
		for _, of := range []part{{"open", c.Open}, {"local", c.Local}} {
			m.counter("headgate_rule_checks_without_store_total", "Those of them that were decided without the store. By: open (let in), local (this server's share).", of.n, "rule", rule, "by", of.value)
		}
	}
}
