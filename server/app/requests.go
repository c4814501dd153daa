package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/prom"
)

// outcome is what became of a request that a door asked to have decided.
type outcome int

const (
	requestAdmitted outcome = iota
	requestDenied
	requestListed
	requestFailed
)

var requestOutcomes = [...]string{requestAdmitted: "admitted", requestDenied: "denied", requestListed: "listed", requestFailed: "error"}

// requests counts what each door asks to have decided. Only requests that would take units
// count: peeks, refunds and resets do not. It is safe for concurrent use.
type requests struct {
	total   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	waiting *prometheus.GaugeVec
}

func newRequests(registry *prometheus.Registry) *requests {
	q := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_requests_total",
			Help: "Requests that a door asked to have decided. Outcome: admitted, denied (by a limit), listed (denied by the deny list), error (no decision).",
		}, []string{"door", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "headgate_request_duration_seconds",
			Help:    "How long a door waited for the decision on a request, errors included. To read the request and to write the answer is not part of it.",
			Buckets: prom.Buckets(),
		}, []string{"door"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headgate_requests_waiting",
			Help: "Requests of a door that wait for their decision.",
		}, []string{"door"}),
	}
	registry.MustRegister(q.total, q.took, q.waiting)
	return q
}

// door returns a decider that counts what the door asks of the given one.
func (q *requests) door(decider decide.Decider, name string) decide.Decider {
	d := &countedDoor{Decider: decider, took: q.took.WithLabelValues(name), waiting: q.waiting.WithLabelValues(name)}
	for i, outcome := range requestOutcomes {
		d.outcomes[i] = q.total.WithLabelValues(name, outcome)
	}
	return d
}

// countedDoor counts the requests of one door.
type countedDoor struct {
	decide.Decider
	outcomes [len(requestOutcomes)]prometheus.Counter
	took     prometheus.Observer
	waiting  prometheus.Gauge
}

// begin is called when a request begins to wait for its decision.
func (d *countedDoor) begin() time.Time {
	d.waiting.Inc()
	return time.Now()
}

// end is called when the request that began then has its decision, or an error.
func (d *countedDoor) end(began time.Time, ask *decide.Ask, decisions []headgate.Decision, err error) {
	d.waiting.Dec()
	d.took.Observe(time.Since(began).Seconds())
	of := requestAdmitted
	switch {
	case err != nil:
		of = requestFailed
	case ask.Denied != nil:
		of = requestListed
	case !headgate.NewVerdict(decisions).Allowed:
		of = requestDenied
	}
	d.outcomes[of].Inc()
}

// Take implements [decide.Decider].
func (d *countedDoor) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	switch {
	case ask.Parts != nil:
		// One of several calls for a request, which Told counts.
		d.waiting.Inc()
		defer d.waiting.Dec()
		return d.Decider.Take(ctx, ask, dst)
	case ask.Op != headgate.OpTake:
		return d.Decider.Take(ctx, ask, dst)
	}
	began := d.begin()
	out, err := d.Decider.Take(ctx, ask, dst)
	d.end(began, ask, out[min(len(dst), len(out)):], err)
	return out, err
}

// TakeOnce implements [decide.Decider].
func (d *countedDoor) TakeOnce(ctx context.Context, terms headgate.Terms, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	began := d.begin()
	out, err := d.Decider.TakeOnce(ctx, terms, ask, dst)
	d.end(began, ask, out[min(len(dst), len(out)):], err)
	return out, err
}

// Reserve implements [decide.Decider].
func (d *countedDoor) Reserve(ctx context.Context, terms headgate.Terms, ask *decide.Ask, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	began := d.begin()
	r, out, err := d.Decider.Reserve(ctx, terms, ask, dst)
	d.end(began, ask, out[min(len(dst), len(out)):], err)
	return r, out, err
}

// Told implements [decide.Decider].
func (d *countedDoor) Told(p *decide.Parts, err error) {
	d.Decider.Told(p, err)
	takes, listed := false, false
	for i := range p.List {
		part := &p.List[i]
		if part.Op != headgate.OpTake {
			continue
		}
		takes, listed = true, listed || part.TurnsAway()
	}
	if !takes {
		return
	}
	d.took.Observe(p.Took.Seconds())
	of := requestAdmitted
	switch {
	case err != nil:
		of = requestFailed
	case listed:
		of = requestListed
	case !p.Verdict().Allowed:
		of = requestDenied
	}
	d.outcomes[of].Inc()
}
