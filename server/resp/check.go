package resp

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

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
			name: "HG.CHECK", least: 3, decides: true, instant: true, run: (*call).check, key: 2, params: with(id, keep),
			summary: "Takes units from every limit that binds the request, or from none.",
		},
		{
			name: "HG.PEEK", least: 3, decides: true, instant: true, run: (*call).peek, key: 2, params: with(),
			summary: "Says what HG.CHECK would say, and takes nothing.",
		},
		{
			name: "HG.REFUND", least: 3, instant: true, run: (*call).refund, key: 2, params: with(at),
			summary: "Gives units back.",
		},
		{
			name: "HG.RESET", least: 3, run: (*call).forget, key: 2, params: with(),
			summary: "Forgets what was used.",
		},
		{
			name: "HG.RESERVE", least: 3, instant: true, run: (*call).reserve, key: 2, params: with(id, keep),
			summary: "Takes units for a request whose cost is an estimate.",
		},
		{
			name: "HG.SETTLE", least: 4, most: 6, instant: true, run: (*call).settle, params: []param{{name: "id"}, cost, {name: "status", token: "STATUS", optional: true}},
			summary: "Makes the units of a reservation those that the work did cost, or that are charged for work that has ended with the HTTP status.",
		},
		{
			name: "HG.CANCEL", least: 2, most: 2, instant: true, run: (*call).cancel, params: []param{{name: "id"}},
			summary: "Gives all units of a reservation back.",
		},
		{
			name: "HG.RULES", least: 1, most: 1, run: (*call).rules,
			summary: "Lists the rules in force.",
		},
		{
			name: "CL.THROTTLE", least: 5, most: 6, decides: true, instant: true, run: (*call).throttle, key: 1,
			params:  []param{{name: "key"}, {name: "max_burst"}, {name: "count"}, {name: "period"}, {name: "quantity", optional: true}},
			summary: "Takes units from a limit that no rule has, as redis-cell does.",
		},
		{
			name: "DEL", least: 2, run: (*call).del, key: 1, params: []param{{name: "key", multiple: true}},
			summary: "Forgets what CL.THROTTLE has taken of the keys.",
		},
	}
}

func (k *call) check()  { k.decide(headgate.OpTake) }
func (k *call) peek()   { k.decide(headgate.OpPeek) }
func (k *call) refund() { k.decide(headgate.OpRefund) }
func (k *call) forget() { k.decide(headgate.OpReset) }

func (k *call) reserve() {
	k.request.Reserve = true
	k.decide(headgate.OpTake)
}

// decide reads the request, carries it out and answers.
func (k *call) decide(op headgate.Op) {
	r := &k.request
	r.Op = op
	if problem := k.read(); problem != "" {
		k.fail("ERR", k.command.name+": "+problem)
		return
	}
	o := r.Decide(k.ctx, k.conn.server.decider)
	switch {
	case o.Kind != decide.Decided:
		k.refuse(o)
	case op == headgate.OpReset:
		k.out = appendArray(k.out, len(r.Checks))
		for i := range r.Checks {
			k.out = appendBulk(k.out, r.Checks[i].Rule.Name())
		}
	default:
		k.appendVerdict(o)
	}
}
