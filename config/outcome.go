package config

import (
	"time"

	"github.com/headgate/headgate/policy"
)

// statusList is a list of HTTP statuses and classes of them.
func statusList() value[policy.Statuses] {
	one := statusText()
	many := listOf(one, 1, policy.MaxStatuses)
	return value[policy.Statuses]{many.schema, func(r *reader, name string, n *node) (policy.Statuses, bool) {
		entries, ok := many.read(r, name, n)
		var all policy.Statuses
		for _, e := range entries {
			if e.good {
				all = append(all, e.value)
			}
		}
		return all, ok
	}}
}

func statusText() value[policy.StatusRange] {
	s := schema{"anyOf": []schema{
		{"type": "integer", "minimum": 100, "maximum": 599},
		{"type": "string", "pattern": "^[1-5](xx|[0-9][0-9])$"},
	}}
	return value[policy.StatusRange]{s, func(r *reader, name string, n *node) (policy.StatusRange, bool) {
		if n.kind == whole || n.kind == text {
			if v, err := policy.ParseStatus(n.text); err == nil {
				return v, true
			}
		}
		r.add(n.at, "%s is %s, must be an HTTP status, such as 304, or a class, such as 5xx", name, describe(n))
		return policy.StatusRange{}, false
	}}
}

// What becomes of a reservation that nobody settles.
const (
	abandonedCharge   = "charge"
	abandonedGiveBack = "give_back"
)

func reservationMapping() value[policy.Reservation] {
	return object("what becomes of reservations", []field[policy.Reservation]{
		to("for", "how long a reservation waits to be settled, such as 5m. Default: 1m", periodText(),
			func(into *policy.Reservation, _ *node, v time.Duration) { into.For = v }),
		to("abandoned", "what to do with a reservation that is never settled: keep the estimate charged (charge, default), or refund it (give_back)", oneOf(abandonedCharge, abandonedGiveBack),
			func(into *policy.Reservation, _ *node, v string) { into.GiveBack = v == abandonedGiveBack }),
	})
}
