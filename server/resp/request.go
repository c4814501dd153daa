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
	ask.Policy = k.conn.server.decider.Policy()
	if k.wish.descriptor {
		if err := ask.Resolve(); err != nil {
			k.refuse(err)
			return false
		}
		for i := range ask.Checks {
			ask.Checks[i].At = ask.At
		}
		k.own()
		return true
	}
	var problems []string
	for i := range ask.Named {
		n := &ask.Named[i]
		var err error
		if ask.Checks, err = ask.Policy.AppendCheck(ask.Checks, n.Rule, n.Key, n.Cost); err == nil {
			continue
		}
		text, ok := mistakes(err)
		if !ok {
			k.refuse(err)
			return false
		}
		if len(ask.Named) > 1 {
			text = fmt.Sprintf("check %d (%s): %s", i+1, n.Rule, text)
		}
		problems = append(problems, text)
	}
	if problems != nil {
		k.fail("ERR", k.command.name+": "+strings.Join(problems, "; "))
		return false
	}
	for i := range ask.Checks {
		ask.Checks[i].At = ask.At
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
