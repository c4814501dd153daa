package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// A failover may lose what the new primary was not sent in time: the end of what the old
// one did. The histories of a failover are held to a model of one counter that at the
// failover, and only there, may go back to a state that it was in before.

// counterLimit is the limit of the rule: a fixed window that lasts longer than any test.
const counterLimit = 60

// event is a call on a counter, or the failover.
type event struct {
	key  string
	do   verb // take, peek, refund or reset
	cost int64
	over bool // it is the failover
}

// told is what came of it.
type told struct {
	unknown   bool // no answer: it was done or not
	admitted  bool
	remaining int64
}

// counter is what is in use, and the set of what ever was, a bit each. The set is empty if no
// failover is to come: nothing depends on it then, and a search that told counters apart by it
// would hardly ever come back to a state that it knows.
type counter struct {
	used   int64
	before uint64
}

func at(used int64, before uint64) counter {
	if before != 0 {
		before |= 1 << used
	}
	return counter{used, before}
}

// counted is a porcupine model of the counters, whose histories have one failover, or none.
func counted(failover bool) porcupine.Model {
	unused := counter{}
	if failover {
		unused.before = 1
	}
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, o := range history {
				key := o.Input.(event).key
				byKey[key] = append(byKey[key], o)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{unused} },
		Step: func(state, input, output any) []any { return next(state.(counter), input.(event), output.(told)) },
		Equal: func(a, b any) bool {
			return a.(counter) == b.(counter)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
	return m.ToModel()
}

// next returns the states that a counter may be in after an event.
func next(s counter, e event, out told) []any {
	if e.over {
		var all []any
		for used := range int64(counterLimit + 1) {
			if s.before&(1<<used) != 0 {
				all = append(all, counter{used: used})
			}
		}
		return all
	}
	after, admitted := s.used, true
	switch fits := s.used+e.cost <= counterLimit; e.do {
	case take:
		if admitted = fits; fits {
			after += e.cost
		}
	case peek:
		admitted = fits
	case refund:
		after -= min(e.cost, after)
	case reset:
		after = 0
	}
	done := at(after, s.before)
	switch {
	case out.unknown && done != s:
		return []any{s, done}
	case out.unknown:
		return []any{s}
	case e.do == reset || out.admitted == admitted && out.remaining == counterLimit-after:
		return []any{done}
	}
	return nil
}
