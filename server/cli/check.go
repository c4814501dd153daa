package cli

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/app"
)

// check is the command that asks for one decision.
type check struct {
	Rule    string        `arg:"" help:"Name of the rule."`
	Key     string        `arg:"" help:"Key that the rule counts under. For a rule with several entries, their values joined by |; for a rule with one counter for all, an empty word, \"\"."`
	Cost    int64         `help:"Units to take." default:"1"`
	Peek    bool          `help:"Look whether they would fit, and take nothing."`
	Remote  remote        `embed:""`
	Store   string        `help:"Ask a store instead, with the rules of --config: redis://…, or another URL that serve takes." placeholder:"URL" env:"HEADGATE_STORE"`
	Config  string        `help:"Policy file, with --store. Without one, the sample policy." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Keys    hashKeys      `embed:""`
	Timeout time.Duration `help:"How long to wait for the answer." default:"5s"`
	JSON    bool          `help:"Print what the HTTP API answers." name:"json"`
}

const checkHint = "headgate check --help says what a key is made of"

const defaultServer = "http://127.0.0.1:8080"

// Help is the detailed help.
func (check) Help() string {
	return "Exit codes: 0 allowed; 1 denied; 2 a mistake, such as a rule that is not there; 3 the server or store does not answer.\n\n" +
		"Examples:\n" +
		"  headgate check auth.createToken user42\n" +
		"  headgate check auth.createToken user42 --cost 3 --peek --json\n" +
		"  headgate check auth.createToken user42 --store redis://127.0.0.1:6379/0 --config headgate.yaml"
}

// Run asks and prints the answer.
func (k *check) Run(c *call) error {
	c.atCost(k.Cost)
	c.inTime(k.Timeout)
	if err := c.mistaken("headgate check --help lists what there is"); err != nil {
		return err
	}
	for _, flag := range []string{"server", "tls-ca", "tls-cert", "tls-key"} {
		if c.flags[flag] && c.flags["store"] {
			return usage("--"+flag+" and --store are both given", "ask one of them: a server knows its own store and rules")
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, k.Timeout)
	defer cancel()
	ask := k.askServer
	// What the command line says goes before what the environment says.
	if k.Store != "" && !c.flags["server"] {
		ask = k.askStore
	} else if c.flags["config"] {
		return usage("--config is given, but a server has its own rules", "it goes with --store")
	}
	a, err := ask(ctx, c)
	if err != nil {
		return err
	}
	if k.JSON {
		if err := printJSON(c.stdout, a); err != nil {
			return err
		}
	} else {
		a.print(c.stdout, k.Peek)
	}
	if !a.Allowed {
		return &failure{code: CodeNo}
	}
	return nil
}

// askStore decides here, by the rules of the policy file.
func (k *check) askStore(ctx context.Context, _ *call) (*answer, error) {
	if k.Store == app.DefaultStore {
		return nil, usage("--store memory is the memory of another process", "ask that process: headgate check --server URL")
	}
	key, old, err := k.Keys.read()
	if err != nil {
		return nil, err
	}
	set, err := app.LoadPolicy(k.Config, key, old)
	if err != nil {
		return nil, err
	}
	checks, err := set.AppendCheck(nil, k.Rule, k.Key, k.Cost)
	if err != nil {
		return nil, err
	}
	store, err := app.OpenStore(ctx, app.Settings{Store: k.Store, StoreTimeout: min(max(k.Timeout, time.Millisecond), time.Minute)})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	op := headgate.OpTake
	if k.Peek {
		op = headgate.OpPeek
	}
	decisions, err := store.Take(ctx, op, checks, nil)
	if err != nil {
		return nil, err
	}
	verdict := headgate.NewVerdict(decisions)
	return answerOf(&verdict), nil
}
