package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// counter has the arguments and flags of all commands about the counters of a key under a rule.
type counter struct {
	Rule    string        `arg:"" help:"Name of the rule."`
	Key     string        `arg:"" help:"The counter's key. If the rule counts by several entries, their values joined by |. If it has one counter for everyone, the empty string."`
	Remote  remote        `embed:"" group:"Server to ask"`
	Store   string        `help:"Use a store directly instead of a server, with the rules of --config: redis://…, or any other URL that serve accepts." placeholder:"URL" env:"HEADGATE_STORE"`
	Config  string        `help:"Policy file, with --store. Without one, the sample policy." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Keys    hashKeys      `embed:"" group:"Hash keys"`
	Timeout time.Duration `help:"How long to wait for the answer." default:"5s"`
	JSON    bool          `help:"Print the answer of the HTTP API, as JSON." name:"json"`
}

// checkBody is the request of the HTTP API about one counter.
type checkBody struct {
	Checks [1]checkOf `json:"checks"`
	At     int64      `json:"at,omitempty"`
}

type checkOf struct {
	Rule string `json:"rule"`
	Key  string `json:"key"`
	Cost int64  `json:"cost,omitempty"`
}

// ask carries out the operation, at a server or at a store. For a refund, at is the time of the
// answer to the check, or zero.
func (k *counter) ask(c *call, op headgate.Op, cost, at int64) (*answer, error) {
	ctx, cancel := context.WithTimeout(c.ctx, k.Timeout)
	defer cancel()
	ofStore, err := c.asksStore(k.Store)
	switch {
	case err != nil:
		return nil, err
	case ofStore:
		return k.askStore(ctx, op, cost, at)
	}
	u, err := k.Remote.url(c)
	if err != nil {
		return nil, err
	}
	path := map[headgate.Op]string{headgate.OpTake: "check", headgate.OpPeek: "peek", headgate.OpRefund: "refund", headgate.OpReset: "reset"}[op]
	status, text, err := k.Remote.send(ctx, http.MethodPost, u.JoinPath("v1", path), checkBody{[1]checkOf{{k.Rule, k.Key, cost}}, at}, "")
	if err != nil {
		return nil, err
	}
	return readAnswer(u, status, text)
}

// askStore decides in this process, by the rules of the policy file.
func (k *counter) askStore(ctx context.Context, op headgate.Op, cost, at int64) (*answer, error) {
	set, err := k.Keys.policy(k.Config)
	if err != nil {
		return nil, err
	}
	checks, err := set.AppendCheck(nil, k.Rule, k.Key, cost)
	if err != nil {
		return nil, err
	}
	for i := range checks {
		checks[i].At = headgate.Instant(at)
	}
	store, err := openStore(ctx, k.Store, k.Timeout)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	decisions, err := store.Take(ctx, op, checks, nil)
	if err != nil {
		return nil, err
	}
	if op == headgate.OpReset {
		return &answer{Reset: []string{k.Rule}}, nil
	}
	verdict := headgate.NewVerdict(decisions)
	return answerOf(&verdict), nil
}

// reset is the command that forgets what was used.
type reset struct {
	counter `embed:""`
}

// Help is the detailed help.
func (reset) Help() string {
	return "Also lifts a penalty, and removes a damaged counter from the store.\n\n" +
		"Exit codes: 0 cleared; 2 a mistake, such as an unknown rule; 3 the server or store does not answer.\n\n" +
		"Examples:\n" +
		"  headgate reset auth.createToken user42\n" +
		"  headgate reset auth.createToken user42 --store redis://127.0.0.1:6379/0 --config headgate.yaml"
}

// Run asks and says what was forgotten.
func (k *reset) Run(c *call) error {
	c.inTime(k.Timeout)
	if err := c.mistaken(); err != nil {
		return err
	}
	a, err := k.ask(c, headgate.OpReset, 1, 0)
	if err != nil {
		return err
	}
	if k.JSON {
		return printJSON(c.stdout, map[string][]string{"reset": a.Reset})
	}
	fmt.Fprintf(c.stdout, "forgotten under %s\n", strings.Join(a.Reset, ", "))
	return nil
}

// refund is the command that gives units back.
type refund struct {
	counter `embed:""`
	Cost    int64 `help:"Units to give back." default:"1"`
	At      int64 `help:"When the units were taken, in microseconds since 1970, as the check's answer said. Windows that have ended since then get nothing back." placeholder:"MICROSECONDS"`
}

// Help is the detailed help.
func (refund) Help() string {
	return "Never gives back more than was used.\n\n" +
		"Exit codes: 0 given back; 2 a mistake, such as an unknown rule; 3 the server or store does not answer.\n\n" +
		"Examples:\n" +
		"  headgate refund auth.createToken user42\n" +
		"  headgate refund auth.createToken user42 --cost 3"
}

// Run asks and prints where the limits stand now.
func (k *refund) Run(c *call) error {
	c.atCost(k.Cost)
	c.within("at", k.At >= 0, fmt.Sprintf("%d, must not be negative", k.At))
	c.inTime(k.Timeout)
	if err := c.mistaken(); err != nil {
		return err
	}
	a, err := k.ask(c, headgate.OpRefund, k.Cost, k.At)
	if err != nil {
		return err
	}
	if k.JSON {
		return printJSON(c.stdout, a)
	}
	fmt.Fprintln(c.stdout, "given back")
	a.printLimits(c.stdout)
	return nil
}
