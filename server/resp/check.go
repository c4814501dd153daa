package resp

import "github.com/headgate/headgate"

func decisionCommands() []*command {
	cost := param{name: "cost", token: "COST", optional: true}
	at := param{name: "microseconds", token: "AT", optional: true}
	id := param{name: "id", token: "ID", optional: true}
	keep := param{name: "milliseconds", token: "FOR", optional: true}
	what := []param{{name: "request", choice: true, of: []param{
		{name: "check", multiple: true, of: []param{{name: "rule"}, {name: "key"}, cost}},
		{name: "descriptor", token: "DESC", of: []param{
			{name: "entry", multiple: true, of: []param{{name: "name"}, {name: "value"}}}, cost,
		}},
	}}}
	with := func(more ...param) []param { return append(what[:len(what):len(what)], more...) }
	return []*command{
		{
			name: "HG.CHECK", least: 3, decides: true, run: (*call).check, key: 2, params: with(id, keep),
			summary: "Takes units from every limit that binds the request, or from none.",
		},
		{
			name: "HG.PEEK", least: 3, decides: true, run: (*call).peek, key: 2, params: with(),
			summary: "Says what HG.CHECK would say, and takes nothing.",
		},
		{
			name: "HG.REFUND", least: 3, run: (*call).refund, key: 2, params: with(at),
			summary: "Gives units back.",
		},
		{
			name: "HG.RESET", least: 3, run: (*call).forget, key: 2, params: with(),
			summary: "Forgets what was used.",
		},
		{
			name: "HG.RESERVE", least: 3, run: (*call).reserve, key: 2, params: with(id, keep),
			summary: "Takes units for a request whose cost is an estimate.",
		},
		{
			name: "HG.SETTLE", least: 4, most: 6, run: (*call).settle, params: []param{{name: "id"}, cost, {name: "status", token: "STATUS", optional: true}},
			summary: "Makes the units of a reservation those that the work did cost, or that are charged for work that has ended with the HTTP status.",
		},
		{
			name: "HG.CANCEL", least: 2, most: 2, run: (*call).cancel, params: []param{{name: "id"}},
			summary: "Gives all units of a reservation back.",
		},
		{
			name: "HG.RULES", least: 1, most: 1, run: (*call).rules,
			summary: "Lists the rules in force.",
		},
		{
			name: "CL.THROTTLE", least: 5, most: 6, decides: true, run: (*call).throttle, key: 1,
			params:  []param{{name: "key"}, {name: "max_burst"}, {name: "count"}, {name: "period"}, {name: "quantity", optional: true}},
			summary: "Takes units from a limit that no rule has, as redis-cell does.",
		},
	}
}

// wish is what a command asks for beside its checks.
type wish struct {
	op         headgate.Op
	reserve    bool
	descriptor bool // DESC was there
	terms      headgate.Terms
}

func (k *call) check()  { k.decide(wish{op: headgate.OpTake}) }
func (k *call) peek()   { k.decide(wish{op: headgate.OpPeek}) }
func (k *call) refund() { k.decide(wish{op: headgate.OpRefund}) }
func (k *call) forget() { k.decide(wish{op: headgate.OpReset}) }

func (k *call) reserve() { k.decide(wish{op: headgate.OpTake, reserve: true}) }

// decide reads the request, has it decided and answers.
func (k *call) decide(w wish) {
	k.wish = w
	if problem := k.read(); problem != "" {
		k.fail("ERR", k.command.name+": "+problem)
		return
	}
	if !k.resolve() {
		return
	}
	d, ctx := k.conn.server.decider, k.conn.server.ctx
	var (
		r   headgate.Reservation
		err error
	)
	switch {
	case w.reserve:
		if k.wish.terms.For == 0 {
			k.wish.terms.For = k.ask.Policy.Term(k.ask.Checks)
		}
		r, k.decisions, err = d.Reserve(ctx, k.wish.terms, &k.ask, k.decisions[:0])
	case k.wish.terms.ID != "":
		k.decisions, err = d.TakeOnce(ctx, k.wish.terms, &k.ask, k.decisions[:0])
	default:
		k.decisions, err = d.Take(ctx, &k.ask, k.decisions[:0])
	}
	switch {
	case err != nil:
		k.refuse(err)
	case w.op != headgate.OpReset && k.undecided():
		k.refuse(headgate.ErrUnavailable)
	case w.op == headgate.OpReset:
		k.out = appendArray(k.out, len(k.ask.Checks))
		for i := range k.ask.Checks {
			k.out = appendBulk(k.out, k.ask.Checks[i].Rule.Name())
		}
	default:
		k.appendVerdict(&r)
	}
}

// undecided reports whether checks were made of which no store has said anything.
// Without decisions a request passes, and this one must not.
func (k *call) undecided() bool { return len(k.ask.Checks) > 0 && len(k.decisions) == 0 }
