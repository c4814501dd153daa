package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// plan is what the gateway derives from its options for one version of the policy. It is immutable.
type plan struct {
	policy decide.Policy
	names  *routes.Names
	table  *routes.Table // finds routes by path
	facts  []fact        // the facts that are needed
	// readsPaths says that paths distinguish requests, needsPath that something uses the entry
	// "path", and readsMethods that the method matters. overridable says that requests are told
	// apart by their method, and that a server may take another one for it.
	readsPaths, needsPath, readsMethods, overridable bool
}

// plan returns the plan for the policy in force. It makes a new one after the policy has changed.
func (g *inner) plan() *plan {
	now := g.decider.Policy()
	p := g.current.Load()
	if p == nil || p.policy != now {
		p = g.newPlan(now)
		g.current.Store(p)
	}
	return p
}

func (g *inner) newPlan(now decide.Policy) *plan {
	p := &plan{policy: now}
	if err := g.keeper.Use(now.Set); err != nil {
		// Check refuses such a policy, too.
		g.options.Logger.Error("what the policy lets be in progress cannot be bounded", slog.Any("error", err))
	}
	var problems []string
	p.names, p.table, problems = g.namesOf(now.Set)
	for _, problem := range problems {
		// Check refuses such a policy, but now it is in force already.
		g.options.Logger.Error("the policy names a route that cannot be found; its rules do not bind it", slog.String("problem", problem))
	}
	if p.names.Unsaid() {
		g.options.Logger.Warn("the policy does not say what is behind", slog.String("problem", routes.UnsaidText))
	}
	if lacking := g.settling.lacking(now.Set); len(lacking) > 0 {
		g.options.Logger.Warn("costs are to be settled under rules that the policy does not have", slog.String("rules", strings.Join(lacking, ", ")))
	}
	needed := make(map[string]bool)
	for _, name := range now.Entries() {
		needed[name] = true
	}
	if g.busy != nil {
		for _, name := range g.busy.Entries() {
			needed[name] = true
		}
	}
	for _, name := range g.entries {
		needed[name] = true
	}
	p.needsPath = needed["path"]
	p.readsPaths = p.needsPath || needed["route"] || len(g.routes) > 0
	p.readsMethods = p.readsPaths || needed["method"]
	p.overridable = p.names.Forms()&spelling.IgnoredOverrides == 0 && (needed["method"] || p.names.Methods())
	for _, f := range g.facts {
		if needed[f.name] {
			p.facts = append(p.facts, f)
		}
		delete(needed, f.name)
	}
	for _, name := range now.Set.Subjects().Names() {
		delete(needed, name)
	}
	if len(needed) > 0 {
		var lacking []string
		for name := range needed {
			lacking = append(lacking, name)
		}
		slices.Sort(lacking)
		g.options.Logger.Warn("the policy looks at entries that no request will have", slog.String("entries", strings.Join(lacking, ", ")))
	}
	return p
}

// Check returns an error if the gateway, with the routes in force, cannot apply a policy. The error
// lists the routes in the policy that are no patterns, or that cannot be distinguished from each
// other.
func (g *Gateway) Check(set *policy.Set) error { return g.current.Load().check(set) }

func (g *inner) check(set *policy.Set) error {
	_, _, wrong := g.namesOf(set)
	var problems headgate.Problems
	for _, text := range wrong {
		problems.Add("match.route", "%s", text)
	}
	return errors.Join(problems.Err("policy"), g.keeper.Check(set))
}

// namesOf finds the routes of a policy, and those of the gateway. The problems are those of routes
// that cannot be found.
func (g *inner) namesOf(set *policy.Set) (names *routes.Names, table *routes.Table, problems []string) {
	names, problems = routes.New(set, spelling.Forms(g.options.Paths), g.patterns()...)
	table = &routes.Table{Forms: names.Forms()}
	for i := range g.options.Routes {
		r := &g.options.Routes[i]
		// Those of routes without a name are among the problems of the names.
		if problem := table.Add(r.Pattern); problem != "" && r.Name != "" {
			problems = append(problems, fmt.Sprintf("the route %q: %s", r.Name, problem))
		}
	}
	return names, table, problems
}

// patterns returns the patterns of the routes without a name of their own.
func (g *inner) patterns() []string {
	var all []string
	for i := range g.options.Routes {
		if r := &g.options.Routes[i]; r.Name == "" {
			all = append(all, r.Pattern)
		}
	}
	return all
}
