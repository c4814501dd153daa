package resp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
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
			name: "HG.SETTLE", least: 3, run: (*call).settle, params: []param{{name: "id"}, {name: "cost", multiple: true}},
			summary: "Makes the units of a reservation those that the request did cost.",
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

// read reads the arguments into the ask and the wish, and returns what is wrong
// with them, or "". The words that are no names are the same for all commands, in
// any case of their letters.
func (k *call) read() (problem string) {
	k.ask.Op = k.wish.op
	for args := k.args[1:]; len(args) > 0; {
		switch word, rest := args[0], args[1:]; {
		case equal(word, "DESC"):
			if k.wish.descriptor || len(k.ask.Named) > 0 {
				return "DESC comes once, and not with rules; before a rule of that name, write RULE"
			}
			k.wish.descriptor = true
			args = rest
			continue
		case equal(word, "COST"), equal(word, "ID"), equal(word, "FOR"), equal(word, "AT"):
			if len(rest) == 0 {
				return strings.ToUpper(word) + " needs a value; before a name that is such a word, write RULE or ENTRY"
			}
			if problem = k.option(strings.ToUpper(word), rest[0]); problem != "" {
				return problem
			}
			args = rest[1:]
			continue
		case equal(word, "RULE") && !k.wish.descriptor, equal(word, "ENTRY") && k.wish.descriptor:
			args = rest
		}
		if problem = k.pair(args); problem != "" {
			return problem
		}
		args = args[2:]
	}
	w := &k.wish
	switch {
	case !w.descriptor && k.ask.Cost != 0:
		return "COST stands behind the rule and the key that it is the cost of"
	case w.descriptor && len(k.ask.Descriptor) == 0:
		return "DESC needs names and values behind it"
	case !w.descriptor && len(k.ask.Named) == 0:
		return "there is neither a rule with its key, nor DESC with names and values"
	case w.terms.For != 0 && w.terms.ID == "" && !w.reserve:
		return "FOR says how long an ID is remembered, and there is no ID"
	}
	for i := range k.ask.Named {
		k.ask.Named[i].Cost = max(k.ask.Named[i].Cost, 1)
	}
	k.ask.Cost = max(k.ask.Cost, 1)
	return ""
}

// pair reads a rule and its key or, of a descriptor, a name and its value.
func (k *call) pair(args []string) (problem string) {
	const entries, checks = policy.MaxEntries, headgate.MaxChecks
	switch d := k.wish.descriptor; {
	case len(args) < 2 && d:
		return "an entry of the descriptor has a name and no value"
	case len(args) < 2:
		return "there is a rule without a key; a rule with one counter for all has the key \"\""
	case d && len(k.ask.Descriptor) == entries:
		return "the descriptor has more than " + strconv.Itoa(entries) + " entries"
	case !d && len(k.ask.Named) == checks:
		return "there are more than " + strconv.Itoa(checks) + " checks"
	case d:
		return k.entry(policy.Entry{Name: args[0], Value: args[1]})
	}
	k.ask.Named = append(k.ask.Named, decide.Named{Rule: args[0], Key: args[1]})
	return ""
}

// entry adds an entry to the descriptor.
func (k *call) entry(e policy.Entry) (problem string) {
	if len(e.Name) == 0 || len(e.Name) > policy.MaxName {
		return fmt.Sprintf("the name of an entry has %d bytes, must have 1 to %d", len(e.Name), policy.MaxName)
	}
	if len(e.Value) > policy.MaxValue {
		return fmt.Sprintf("the value of the entry %s has %d bytes, may have %d", quote(e.Name), len(e.Value), policy.MaxValue)
	}
	for i := range k.ask.Descriptor {
		if k.ask.Descriptor[i].Name == e.Name {
			return "the entry " + quote(e.Name) + " is given twice"
		}
	}
	k.ask.Descriptor = append(k.ask.Descriptor, e)
	return ""
}

// option reads what stands behind one of the words.
func (k *call) option(word, value string) (problem string) {
	w, ask := &k.wish, &k.ask
	const twice = " is given twice"
	switch word {
	case "COST":
		cost := &ask.Cost
		if len(ask.Named) > 0 {
			cost = &ask.Named[len(ask.Named)-1].Cost
		}
		if *cost != 0 {
			return word + twice
		}
		return whole(value, "the cost", 1, headgate.MaxCount, cost)
	case "ID":
		switch {
		case w.op != headgate.OpTake:
			return "ID is for HG.CHECK and HG.RESERVE"
		case value == "" || len(value) > headgate.MaxID:
			return fmt.Sprintf("the id has %d bytes, must have 1 to %d", len(value), headgate.MaxID)
		case w.terms.ID != "":
			return word + twice
		}
		w.terms.ID = value
	case "FOR":
		switch {
		case w.op != headgate.OpTake:
			return "FOR is for HG.CHECK and HG.RESERVE"
		case w.terms.For != 0:
			return word + twice
		}
		var ms int64
		if problem = whole(value, "the time behind FOR", 1, headgate.MaxTerm.Milliseconds(), &ms); problem != "" {
			return problem + " milliseconds"
		}
		w.terms.For = time.Duration(ms) * time.Millisecond
	case "AT":
		switch {
		case w.op != headgate.OpRefund:
			return "AT is for HG.REFUND"
		case ask.At != 0:
			return word + twice
		}
		// What any language's numbers hold exactly.
		const most = 1 << 53
		if problem = whole(value, "the time behind AT", 1, most, &ask.At); problem != "" {
			return problem + ": microseconds since 1970, as the answer to the check has them"
		}
	}
	return ""
}

// whole reads a whole number within bounds.
func whole(text, what string, least, most int64, to *int64) (problem string) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return what + " is not a whole number, must be " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
	case err != nil || n < least || n > most:
		return what + " is " + quoteNumber(text) + ", must be " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
	}
	*to = n
	return ""
}

// quoteNumber shortens a number that has too many digits to be shown.
func quoteNumber(text string) string {
	if len(text) > 24 {
		return text[:24] + "..."
	}
	return text
}

// resolve finds the checks that the request means, and answers if there is anything
// wrong with them.
func (k *call) resolve() bool {
	ask := &k.ask
	if k.wish.descriptor {
		if err := ask.Resolve(k.conn.server.decider); err != nil {
			k.refuse(err)
			return false
		}
		k.own()
		return true
	}
	ask.Policy = k.conn.server.decider.Policy()
	var problems []string
	for i := range ask.Named {
		n := &ask.Named[i]
		check, err := ask.Policy.Check(n.Rule, n.Key, n.Cost)
		if err != nil {
			text, ok := mistakes(err)
			if !ok {
				k.refuse(err)
				return false
			}
			problems = append(problems, text)
		}
		check.At = ask.At
		ask.Checks = append(ask.Checks, check)
	}
	if problems != nil {
		k.fail("ERR", k.command.name+": "+strings.Join(problems, "; "))
		return false
	}
	k.own()
	return true
}

// own gives what a store may keep, when a request has an id, memory of its own:
// what arrived together with it would stay otherwise.
func (k *call) own() {
	w := &k.wish
	if w.terms.ID == "" && !w.reserve {
		return
	}
	w.terms.ID = strings.Clone(w.terms.ID)
	for i := range k.ask.Checks {
		k.ask.Checks[i].Key = strings.Clone(k.ask.Checks[i].Key)
	}
}

// refuse answers for an error. That of a store is for the log of whoever runs the
// server: it may name addresses that are no caller's business.
func (k *call) refuse(err error) {
	text, invalid := mistakes(err)
	switch {
	case invalid:
		k.fail("ERR", k.command.name+": "+text)
	case errors.Is(err, policy.ErrUnknownRule):
		k.fail("NORULE", plain(err)+"; HG.RULES lists them")
	case errors.Is(err, headgate.ErrConflict):
		k.fail("CONFLICT", plain(err))
	case errors.Is(err, headgate.ErrNoReservation):
		k.fail("NORESERVATION", "there is no reservation by this id that can be settled: it has expired, or there never was one")
	case errors.Is(err, errors.ErrUnsupported):
		k.fail("ERR", "the store does not remember requests by an id")
	default:
		k.fail("UNAVAILABLE", "the store did not answer in time; whether the request was charged is not known")
	}
}

// mistakes returns what is wrong with the request, if that is what the error says.
func mistakes(err error) (text string, invalid bool) {
	var e *headgate.InvalidError
	if errors.As(err, &e) {
		return strings.Join(e.Problems, "; "), true
	}
	return "", false
}

// plain is the error's text without the name of the package that it came from.
func plain(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "headgate: "), "conflict: ")
}

func (k *call) cancel() { k.settleAt(nil) }

func (k *call) settle() {
	costs := make([]int64, len(k.args)-2)
	for i, text := range k.args[2:] {
		if problem := whole(text, "the cost", 0, headgate.MaxCount, &costs[i]); problem != "" {
			k.fail("ERR", k.command.name+": "+problem)
			return
		}
	}
	k.settleAt(costs)
}

// settleAt settles the reservation at one cost for all of its checks, at one for
// each, or at nothing.
func (k *call) settleAt(costs []int64) {
	d, ctx := k.conn.server.decider, k.conn.server.ctx
	r, err := d.Recall(ctx, strings.Clone(k.args[1]))
	if err != nil {
		k.refuse(err)
		return
	}
	var units []int64
	switch n := len(costs); {
	case n == 0:
		units = make([]int64, len(r.Checks))
	case n == 1:
		units = r.Units(costs[0])
	case n != len(r.Checks):
		k.fail("ERR", fmt.Sprintf("%s: there are %d costs, must be one for all or one for each of the reservation's %d checks", k.command.name, n, len(r.Checks)))
		return
	default:
		for i, cost := range costs {
			units = append(units, r.Units(cost)[i])
		}
	}
	k.ask.Policy = d.Policy()
	k.decisions, err = d.Settle(ctx, r, units, k.decisions[:0])
	if err != nil {
		k.refuse(err)
		return
	}
	k.appendVerdict(&headgate.Reservation{})
}
