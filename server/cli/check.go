package cli

import "github.com/headgate/headgate"

// check is the command that asks for one decision.
type check struct {
	counter `embed:""`
	Cost    int64 `help:"Units to take." default:"1"`
	Peek    bool  `help:"Check whether they would fit, without taking them."`
}

const defaultServer = "http://127.0.0.1:8080"

// Help is the detailed help.
func (check) Help() string {
	return "Exit codes: 0 allowed; 1 denied; 2 a mistake, such as an unknown rule; 3 the server or store does not answer.\n\n" +
		"Examples:\n" +
		"  headgate check auth.createToken user42\n" +
		"  headgate check auth.createToken user42 --cost 3 --peek --json\n" +
		"  headgate check auth.createToken user42 --store redis://127.0.0.1:6379/0 --config headgate.yaml"
}

// Run asks and prints the answer.
func (k *check) Run(c *call) error {
	c.atCost(k.Cost)
	c.inTime(k.Timeout)
	if err := c.mistaken(); err != nil {
		return err
	}
	op := headgate.OpTake
	if k.Peek {
		op = headgate.OpPeek
	}
	a, err := k.ask(c, op, k.Cost, 0)
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
