package resp

import (
	"errors"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// read parses the arguments into the request. It returns what is wrong with them, or "". The
// keywords, such as DESC and COST, are the same for all commands, in any case.
func (k *call) read() (problem string) {
	r := &k.request
	for args := k.args[1:]; len(args) > 0; {
		described := r.Given&decide.GivenDescriptor != 0
		switch word, rest := args[0], args[1:]; {
		case equal(word, "DESC"):
			if r.Given&(decide.GivenDescriptor|decide.GivenChecks) != 0 {
				return "DESC comes once, and not with rules; before a rule of that name, write RULE"
			}
			r.Given = decide.GivenDescriptor
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
		case equal(word, "RULE") && !described, equal(word, "ENTRY") && described:
			args = rest
		}
		if problem = k.pair(args, described); problem != "" {
			return problem
		}
		args = args[2:]
	}
	switch described := r.Given&decide.GivenDescriptor != 0; {
	case !described && r.Given&decide.GivenCost != 0:
		return "COST stands behind the rule and the key that it is the cost of"
	case described && len(r.Descriptor) == 0:
		return "DESC needs names and values behind it"
	case !described && len(r.Named) == 0:
		return "there is neither a rule with its key, nor DESC with names and values"
	case r.Given&decide.GivenLifetime != 0 && r.Given&decide.GivenID == 0 && !r.Reserve:
		return "FOR says how long an ID is remembered, and there is no ID"
	}
	return ""
}

// pair parses a rule and its key or, in a descriptor, a name and its value.
func (k *call) pair(args []string, described bool) (problem string) {
	r := &k.request
	switch {
	case len(args) < 2 && described:
		return "an entry of the descriptor has a name and no value"
	case len(args) < 2:
		return "there is a rule without a key; a rule with one counter for all has the key \"\""
	case described:
		if r.Entry(args[0]) != nil {
			return "the entry " + quote(args[0]) + " is given twice"
		}
		r.AddEntry(policy.Entry{Name: args[0], Value: args[1]})
	default:
		r.Given |= decide.GivenChecks
		r.AddCheck(decide.Named{Rule: args[0], Key: args[1], Given: decide.GivenRule | decide.GivenKey})
	}
	return ""
}

// option parses the value of a keyword.
func (k *call) option(word, value string) (problem string) {
	r := &k.request
	given, field := &r.Given, decide.GivenCost
	switch word {
	case "COST":
		cost := &r.Cost
		if n := len(r.Named); n > 0 {
			given, cost = &r.Named[n-1].Given, &r.Named[n-1].Cost
		}
		if *given&field == 0 {
			problem = whole(value, "the cost", 1, headgate.MaxCount, cost)
		}
	case "ID":
		if field = decide.GivenID; r.Op != headgate.OpTake {
			return "ID is for HG.CHECK and HG.RESERVE"
		}
		r.ID = value
	case "FOR":
		if field = decide.GivenLifetime; r.Op != headgate.OpTake {
			return "FOR is for HG.CHECK and HG.RESERVE"
		}
		if problem = whole(value, "the time behind FOR", 1, headgate.MaxTerm.Milliseconds(), &r.LifetimeMS); problem != "" {
			return problem + " milliseconds"
		}
	case "AT":
		if field = decide.GivenAt; r.Op != headgate.OpRefund {
			return "AT is for HG.REFUND"
		}
		// The integers that a float64 holds exactly, as in many languages.
		const most = 1 << 53
		if problem = whole(value, "the time behind AT", 1, most, &r.At); problem != "" {
			return problem + ": microseconds since 1970, as the answer to the check has them"
		}
	}
	if *given&field != 0 {
		return word + " is given twice"
	}
	*given |= field
	return problem
}

// whole parses a whole number within bounds.
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
