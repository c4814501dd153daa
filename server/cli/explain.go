package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/app"
	"github.com/headgate/headgate/server/decide"
)

// explainRequest is the command that explains what a policy does with a request.
type explainRequest struct {
	Entries []string      `arg:"" name:"key=value" help:"Facts about the request, such as ip=203.0.113.10 or route='GET /'." optional:""`
	Config  string        `help:"Policy file. Without one, the sample policy." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Envoy   string        `name:"envoy-config" help:"Directory with an envoyproxy/ratelimit configuration to use as the policy. Give the domain, and the entries of one descriptor in order." placeholder:"DIR" env:"HEADGATE_ENVOY_CONFIG"`
	Cost    int64         `help:"What the request costs." default:"1"`
	Model   string        `help:"The language model that the request calls. Default: the entry model." placeholder:"NAME"`
	Input   int64         `name:"input-tokens" help:"How many tokens of input a call to a language model has." placeholder:"N"`
	Output  int64         `name:"output-tokens" help:"How many tokens of output it has." placeholder:"N"`
	Expect  []string      `help:"Exit with 1 unless this holds: allow, deny, or rule=NAME (the rule applies). May be repeated; all must hold." placeholder:"WHAT" sep:"none"`
	Store   string        `help:"Read the counters in this store, without charging them: redis://…, or any other URL that serve accepts." placeholder:"URL" env:"HEADGATE_STORE"`
	Keys    hashKeys      `embed:"" group:"Hash keys"`
	Timeout time.Duration `help:"How long to wait for the store." default:"5s"`
	JSON    bool          `help:"Print the answer of the HTTP API, as JSON." name:"json"`
}

// Help is the detailed help.
func (explainRequest) Help() string {
	return "Shows which rules apply to the request, why the others do not, the keys it is counted under, and the state of each limit. Without --store, that is the state when nothing has been used yet.\n\n" +
		"Exit codes: 0 explained, and every --expect holds; 1 an --expect does not hold; 2 a mistake; 3 the store does not answer.\n\n" +
		"Examples:\n" +
		"  headgate explain --config headgate.yaml user=ada ip=203.0.113.10 route='POST /login'\n" +
		"  headgate explain --envoy-config ratelimit domain=edge user=anna path=/files/a\n" +
		"  headgate explain --config headgate.yaml tier=free --cost 9 --expect allow --expect rule=login\n" +
		"  headgate explain --config headgate.yaml api_key=k1 --store redis://127.0.0.1:6379/0"
}

// usage is what the request uses of a language model, or nil if it calls none.
func (k *explainRequest) usage(d policy.Descriptor) *models.Usage {
	if k.Input == 0 && k.Output == 0 {
		return nil
	}
	u := &models.Usage{Model: k.Model, Input: k.Input, Output: k.Output}
	if u.Model == "" {
		u.Model, _ = d.Get("model")
	}
	return u
}

// Run explains, prints, and compares with what is expected.
func (k *explainRequest) Run(c *call) error {
	c.atCost(k.Cost)
	c.inTime(k.Timeout)
	if err := c.mistaken(); err != nil {
		return err
	}
	if k.Store == app.DefaultStore {
		// The environment may name the memory store for a server. Here it is the same as no store.
		k.Store = ""
	}
	descriptor, err := k.descriptor()
	if err != nil {
		return err
	}
	rules, err := k.load()
	if err != nil {
		return err
	}
	e := rules.Explain(descriptor, k.Cost, k.usage(descriptor))
	if err := k.checkExpectations(&e); err != nil {
		return err
	}
	if e.Error == "" {
		if err := k.observe(c.ctx, rules.Set, &e); err != nil {
			return err
		}
		e.Lose(headgate.OnErrorReturn)
	}
	if k.JSON {
		if err := printJSON(c.stdout, &e); err != nil {
			return err
		}
	} else {
		fmt.Fprint(c.stdout, e.String())
		if k.Store == "" && e.Error == "" {
			fmt.Fprintln(c.stdout, "(without --store: as if nothing had been used yet)")
		}
	}
	return k.compare(&e)
}

// load reads the policy.
func (k *explainRequest) load() (decide.Policy, error) {
	if k.Envoy != "" && k.Config != "" {
		return decide.Policy{}, usage("there are both --config and --envoy-config, and a request is decided by one policy", "leave one of them out")
	}
	if k.Envoy == "" {
		set, err := k.Keys.policy(k.Config)
		return decide.Policy{Set: set}, err
	}
	key, old, err := k.Keys.read()
	if err != nil {
		return decide.Policy{}, err
	}
	rules, err := app.LoadEnvoy(k.Envoy, key, old)
	if err != nil {
		err = envoyFailure(err)
	}
	return rules, err
}

// descriptor parses the arguments of the command line. Their order is that of the entries.
func (k *explainRequest) descriptor() (policy.Descriptor, error) {
	entries := make(map[string]string, len(k.Entries))
	var inOrder policy.Descriptor
	var problems []string
	for i, word := range k.Entries {
		name, value, ok := strings.Cut(word, "=")
		if _, again := entries[name]; again && k.Envoy == "" {
			problems = append(problems, fmt.Sprintf("%s is given twice", name))
		}
		if !ok {
			// The argument may be a secret without its name, so only its beginning is repeated.
			which := fmt.Sprintf("word %d", i+1)
			if begins := beginning(word); begins != "" {
				which += fmt.Sprintf(", which begins with %q,", begins)
			}
			problems = append(problems, which+" is not key=value")
			continue
		}
		entries[name] = value
		inOrder = append(inOrder, policy.Entry{Name: name, Value: value})
	}
	if k.Envoy != "" && problems == nil {
		// These entries may have any names, and may repeat a name.
		return inOrder, nil
	}
	d, err := policy.FromMap(entries)
	if err != nil {
		problems = append(problems, errtext.Text(err))
	}
	if problems != nil {
		return nil, usage(joinLines(problems), "")
	}
	return d, nil
}

// beginning returns enough of an argument to recognize it: at most a third of it, and at most four
// characters.
func beginning(word string) string {
	letters := []rune(word)
	return string(letters[:min(4, len(letters)/3)])
}

// checkExpectations returns an error for expectations that can never hold.
func (k *explainRequest) checkExpectations(e *explain.Explanation) error {
	var problems []string
	for _, want := range k.Expect {
		name, isRule := strings.CutPrefix(want, "rule=")
		switch {
		case isRule && !slices.ContainsFunc(e.Rules, func(r explain.Rule) bool { return r.Rule == name }):
			problems = append(problems, fmt.Sprintf("--expect %s: the policy has no such rule", want))
		case !isRule && want != "allow" && want != "deny":
			problems = append(problems, fmt.Sprintf("--expect is %q, must be allow, deny or rule=NAME", want))
		}
	}
	if problems != nil {
		return usage(joinLines(problems), "")
	}
	return nil
}

// observe asks a store for the state of the limits: the named one, or a new one in memory.
func (k *explainRequest) observe(ctx context.Context, set *policy.Set, e *explain.Explanation) error {
	checks := e.Checks()
	if len(checks) == 0 {
		e.Observe(set, nil)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	store, err := openStore(ctx, k.Store, k.Timeout)
	if err != nil {
		return err
	}
	defer store.Close()
	decisions, err := store.Take(ctx, headgate.OpPeek, checks, nil)
	if err != nil {
		return err
	}
	e.Observe(set, decisions)
	return nil
}

// compare returns an error with the expectations that do not hold.
func (k *explainRequest) compare(e *explain.Explanation) error {
	var wrong []string
	for _, want := range k.Expect {
		name, isRule := strings.CutPrefix(want, "rule=")
		switch {
		case isRule:
			if why := unbound(e, name); why != "" {
				wrong = append(wrong, fmt.Sprintf("rule %q was expected to bind the request, and does not: %s", name, why))
			}
		case e.Error != "":
			wrong = append(wrong, fmt.Sprintf("--expect %s does not hold: the request cannot be decided: %s", want, e.Error))
		case (want == "allow") != e.Verdict.Allowed:
			is := "denied"
			if e.Verdict.Allowed {
				is = "allowed"
			}
			wrong = append(wrong, fmt.Sprintf("--expect %s does not hold: the request is %s", want, is))
		}
	}
	if wrong != nil {
		return &failure{code: CodeNo, text: joinLines(wrong)}
	}
	return nil
}

// unbound returns why the rule does not bind the request, or "".
func unbound(e *explain.Explanation, name string) string {
	for i := range e.Rules {
		if r := &e.Rules[i]; r.Rule == name && !r.Binds {
			return r.Why
		}
	}
	return ""
}
