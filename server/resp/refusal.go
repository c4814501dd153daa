package resp

import "github.com/headgate/headgate/server/decide"

// prefixes are the first words of the errors for requests without a verdict. Clients distinguish
// errors by them.
var prefixes = [...]string{
	decide.Faulty:        "ERR",
	decide.Refused:       "ERR",
	decide.Conflict:      "CONFLICT",
	decide.NoReservation: "NORESERVATION",
	decide.Unsupported:   "ERR",
	decide.Unavailable:   "UNAVAILABLE",
	decide.Gone:          "UNAVAILABLE",
	decide.NotHeld:       "NOTHELD",
	decide.Revoked:       "REVOKED",
	decide.OtherCost:     "OTHERCOST",
	decide.NoPermits:     "ERR",
}

// refuse answers a request without a verdict.
func (k *call) refuse(o *decide.Outcome) {
	text := o.Text()
	switch faults := k.request.Faults; {
	case o.Kind == decide.Refused:
		text = k.command.name + ": " + text
	case o.Kind != decide.Faulty:
	case faults.Kind() == decide.UnknownRule:
		k.fail("NORULE", faults[0].Text+"; HG.RULES lists them")
		return
	default:
		text = k.command.name + ": "
		for i := range faults {
			if i > 0 {
				text += "; "
			}
			text += faults[i].Place.String() + ": " + faults[i].Text
		}
	}
	k.fail(prefixes[o.Kind], text)
}
