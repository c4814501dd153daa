package app

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/insight"
)

// outcome is how a door's request was decided.
type outcome int

const (
	requestAdmitted outcome = iota
	requestDenied
	requestListed
	requestFailed
)

var requestOutcomes = [...]string{requestAdmitted: "admitted", requestDenied: "denied", requestListed: "listed", requestFailed: "error"}

// requests counts the requests of each door. Only requests that would take units are counted:
// peeks, refunds and resets are not. It is safe for concurrent use once all doors have been added.
type requests struct {
	names []string       // of the doors
	doors []*tally.Tally // by outcome
}

func newRequests(registry *prometheus.Registry) *requests {
	q := new(requests)
	registry.MustRegister(scraped(q.collect))
	return q
}

// collect adds the metrics of all doors.
func (q *requests) collect(m scrape) {
	for i, door := range q.names {
		outcomes, waiting := q.doors[i].Read()
		var all tally.Kind
		for of := range outcomes {
			all.Add(outcomes[of])
			m.counter("headgate_requests_total", "Requests that a door asked to have decided. Outcome: admitted, denied (by a limit), listed (denied by the deny list), error (no decision).", int64(outcomes[of].Calls), "door", door, "outcome", requestOutcomes[of])
		}
		m <- prometheus.MustNewConstHistogram(prometheus.NewDesc("headgate_request_duration_seconds", "How long the store took for the decision on a request of a door, errors included.", []string{"door"}, nil),
			all.Calls, all.Took.Seconds(), all.Within, door)
		m.gauge("headgate_requests_waiting", "Requests of a door that wait for their decision.", float64(waiting), "door", door)
	}
}

// door returns a decider that counts the door's requests to the given decider, and reports them to
// to, unless that is nil.
func (q *requests) door(decider decide.Decider, rules func() decide.Policy, name string, to *insight.Door) decide.Decider {
	d := &countedDoor{Decider: decider, rules: rules, calls: tally.New(len(requestOutcomes)), to: to}
	q.names, q.doors = append(q.names, name), append(q.doors, d.calls)
	return d
}

// countedDoor counts the requests of one door. It does not read the clock, because that would be a
// large part of a decision's cost. The store's time, which is measured anyway, is nearly all of the
// time that a door waits.
type countedDoor struct {
	decide.Decider
	rules func() decide.Policy
	calls *tally.Tally
	to    *insight.Door
}

// Policy implements [decide.Decider].
func (d *countedDoor) Policy() decide.Policy { return d.rules() }

// Take implements [decide.Decider].
func (d *countedDoor) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if !ask.Takes() {
		return d.Decider.Take(ctx, ask, dst)
	}
	call := d.calls.Begin()
	out, err := d.Decider.Take(ctx, ask, dst)
	made := out[min(len(dst), len(out)):]
	outcome := requestAdmitted
	switch {
	case err != nil:
		outcome = requestFailed
	case ask.TurnedAway():
		outcome = requestListed
	case !headgate.NewVerdict(made).Allowed:
		outcome = requestDenied
	}
	call.End(int(outcome), ask.Took)
	switch {
	case d.to == nil:
	case err == nil:
		d.tell(ask, made)
	case ofStore(ctx, err):
		d.to.Failed(ask.Checks)
	}
	return out, err
}

// tell reports a request that was answered: as that of a list, or by what was decided.
func (d *countedDoor) tell(ask *decide.Ask, made []headgate.Decision) {
	entry, denied := ask.Answered()
	if entry != "" {
		d.to.Listed(entry, denied)
	}
	// Of several descriptors, a list may answer one, and limits decide the others.
	ask.Calls(made, func(call *decide.Ask, decisions []headgate.Decision) {
		if call.Op == headgate.OpTake && (entry == "" || len(decisions) > 0) {
			d.to.Decided(call.Policy.Version, call.Checks, decisions)
		}
	})
}

// ofStore reports whether an error says something about the store: the caller has not gone, and the
// request was a valid one.
func ofStore(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, headgate.ErrInvalid) && !errors.Is(err, headgate.ErrConflict) && !errors.Is(err, errors.ErrUnsupported)
}
