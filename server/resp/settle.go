package resp

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

func (k *call) cancel() {
	k.end(decide.Settlement{Reservation: k.args[1], Given: decide.GivenCost})
}

func (k *call) settle() {
	to := decide.Settlement{Reservation: k.args[1]}
	for args := k.args[2:]; len(args) > 0; args = args[2:] {
		var problem string
		switch word := args[0]; {
		case len(args) == 1:
			problem = "there is nothing behind " + quote(word)
		case equal(word, "COST") && to.Given&decide.GivenCost == 0:
			to.Given |= decide.GivenCost
			problem = whole(args[1], "the cost", 0, headgate.MaxCount, &to.Cost)
		case equal(word, "STATUS") && to.Given&decide.GivenStatus == 0:
			to.Given |= decide.GivenStatus
			problem = whole(args[1], "the status", 100, 599, &to.Status)
		default:
			problem = quote(word) + " is neither COST nor STATUS, or is given twice"
		}
		if problem != "" {
			k.fail("ERR", k.command.name+": "+problem)
			return
		}
	}
	k.end(to)
}

// end settles the reservation and answers with the verdict.
func (k *call) end(to decide.Settlement) {
	o := k.request.Settle(k.ctx, k.conn.server.decider, to)
	if o.Kind != decide.Decided {
		k.refuse(o)
		return
	}
	k.appendVerdict(o)
}
