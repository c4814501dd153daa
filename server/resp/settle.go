package resp

import (
	"fmt"

	"github.com/headgate/headgate"
)

func (k *call) cancel() { k.settleAt(0, 0) }

func (k *call) settle() {
	cost, status := int64(-1), int64(0)
	for args := k.args[2:]; len(args) > 0; args = args[2:] {
		var problem string
		switch word := args[0]; {
		case len(args) == 1:
			problem = "there is nothing behind " + quote(word)
		case equal(word, "COST") && cost < 0:
			problem = whole(args[1], "the cost", 0, headgate.MaxCount, &cost)
		case equal(word, "STATUS") && status == 0:
			problem = whole(args[1], "the status", 100, 599, &status)
		default:
			problem = quote(word) + " is neither COST nor STATUS, or is given twice"
		}
		if problem != "" {
			k.fail("ERR", k.command.name+": "+problem)
			return
		}
	}
	k.settleAt(cost, int(status))
}

// settleAt settles the reservation for work of the cost, or of the estimated cost
// if it is negative, that has ended with the status, or with one that is not known
// if it is zero.
func (k *call) settleAt(cost int64, status int) {
	// A ledger makes ids up itself, and makes longer ones of those it is given.
	const most = 2 * headgate.MaxID
	if n := len(k.args[1]); n == 0 || n > most {
		k.fail("ERR", fmt.Sprintf("%s: the id has %d bytes, must have 1 to %d", k.command.name, n, most))
		return
	}
	d, ctx := k.conn.server.decider, k.conn.server.ctx
	r, err := d.Recall(ctx, k.args[1])
	if err != nil {
		k.refuse(err)
		return
	}
	k.ask.Policy = d.Policy()
	k.decisions, err = d.Settle(ctx, r, k.ask.Policy.Settle(&r, cost, status), k.decisions[:0])
	if err != nil {
		k.refuse(err)
		return
	}
	k.appendVerdict(&headgate.Reservation{})
}
