package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/candidate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

const (
	// candidatePart separates the candidate's counters from those in force on the same server: they
	// are under hg-candidate:, not under hg:.
	candidatePart = "candidate"
	// candidateShare divides the memory store's bound: the candidate's counters may take this part
	// in addition.
	candidateShare = 4
	// candidateCalls is how many of the candidate's calls to a store across a network may be in
	// flight.
	candidateCalls = 32
	// candidateTimeout is the shortest deadline of such a call. It is long, because no request
	// waits for the call.
	candidateTimeout = 250 * time.Millisecond
)

// trial is a candidate, with what is needed to compare it with the policy in force.
type trial struct {
	*candidate.Trial
	source   *source
	store    headgate.Store
	counters string // where they are
	crowded  func() uint64
	close    func()
}

// newTrial reads the candidate and opens its store. If the file has mistakes, newTrial does not
// fail: they are logged, and the service starts without the candidate. A candidate must never keep
// the service from serving.
func newTrial(ctx context.Context, s *Settings, live func() decide.Policy) (*trial, error) {
	logger := s.Logger.With(slog.String("policy", "candidate"))
	t := &trial{
		source: &source{
			// The candidate is of the same kind as the policy in force, so that both understand the
			// same requests.
			file: s.Candidate, envoy: s.EnvoyConfig != "", options: s.policyOptions(), logger: logger,
			reloads: reloads{origin: origin{files: []string{s.Candidate}}},
		},
		crowded: func() uint64 { return 0 },
		close:   func() {},
	}
	options := candidate.Options{Live: live, Policy: t.source.now, Logger: logger}
	if err := t.open(ctx, s, &options); err != nil {
		return nil, err
	}
	failed := &warned{logger: logger, every: failedEvery}
	options.Store = headgate.Observe(t.store, headgate.Hooks{Failed: func(ctx context.Context, _ headgate.Op, _ []headgate.Check, err error, took time.Duration) {
		if ofStore(ctx, err) && failed.due() {
			logger.ErrorContext(ctx, "the candidate's store does not answer; nothing is compared", slog.Any("error", err), slog.Duration("took", took), failed.times("such_requests"))
		}
	}})
	t.Trial = candidate.New(options)
	if err := t.source.begin(); err != nil {
		t.source.fail("the start", err)
	}
	return t, nil
}

// open opens the store for the candidate's counters, without any layer around it. A layer's answers
// (from this server's share, a lease, or a remembered denial) would be counted as differences
// between the policies. If the store does not answer a request, the request is not compared.
func (t *trial) open(ctx context.Context, s *Settings, options *candidate.Options) error {
	if s.Store == memoryStore {
		most := int64(memory.DefaultMaxBytes)
		if s.MemoryMiB > 0 {
			most = s.MemoryMiB << 20
		}
		options.Clock = new(candidate.Clock)
		store := memory.New(memory.MaxBytes(most/candidateShare), memory.Clock(options.Clock.Now))
		t.store, t.counters = store, store.String()
		t.crowded = func() uint64 { return store.Stats().Shared }
		return nil
	}
	store, err := backendOf(s.Store).openLate(ctx, s.Store, backendOptions{timeout: max(s.StoreTimeout, candidateTimeout), part: candidatePart}, t.source.logger)
	if err != nil {
		return &unavailable{"the store " + describeStore(s.Store) + " cannot be used for the candidate", err}
	}
	t.store, t.counters = store, describeStore(s.Store)+", the part "+candidatePart
	if named, ok := store.(interface{ Prefix() string }); ok {
		t.counters = describeStore(s.Store) + " under " + named.Prefix()
	}
	t.close, options.Workers = sync.OnceFunc(store.Close), candidateCalls
	return nil
}

// logCandidate logs which candidate is compared.
func (t *trial) logCandidate() {
	if p := t.source.now(); p.Set == nil {
		t.source.logger.Warn("no candidate is tried until its file can be loaded", slog.String("file", t.source.file))
	} else {
		t.source.logger.Info("a candidate is tried beside the policy in force", slog.String("file", t.source.file), slog.Int64("version", p.Version), slog.String("hash", p.Hash), slog.Int("rules", len(p.Rules())), slog.String("counters", t.counters))
		t.source.warn()
	}
}

// candidateReport returns the function that answers GET /v1/candidate; nil without a candidate.
func (a *App) candidateReport() func(keys bool) any {
	if a.trial == nil {
		return nil
	}
	return func(keys bool) any { return a.trial.report(keys) }
}

// report is what GET /v1/candidate answers.
func (t *trial) report(keys bool) candidate.Report {
	r := t.Report(keys)
	r.Counters, r.Crowded = t.counters, t.crowded()
	if f := t.source.failed.Load(); f != nil {
		r.Failed = &candidate.Failed{At: f.at.UTC(), Detail: "the candidate could not be loaded, and the log says more"}
		if keys {
			r.Failed.Detail = reloadError(f.err).Detail
			r.Failed.Mistakes = mistakesOf(f.err)
		}
	}
	return r
}

// collect adds the metrics of the trial and of its policy.
func (t *trial) collect(m scrape) {
	t.source.collect(m, "headgate_candidate", "candidate", "candidate")
	compared, notCompared := t.Outcomes()
	for _, c := range compared {
		m.counter("headgate_candidate_compared_total", "Requests that the candidate has decided as well. Outcome: both_admitted, both_denied, newly_denied, newly_admitted, undecidable (the candidate has no answer).", c.Count, "outcome", c.Outcome)
	}
	for _, c := range notCompared {
		m.counter("headgate_candidate_not_compared_total", "Requests that were not compared with the candidate. Reason: dropped (too many were waiting), undecided (the service had no decision), unanswered (the candidate's store had none).", c.Count, "reason", c.Outcome)
	}
	for _, c := range t.Differences() {
		m.counter("headgate_candidate_differences_total", "Requests that the candidate decides otherwise, by the rule or the entry of the deny list that decides. Kind: newly_denied, newly_admitted, undecidable.", c.Count, "kind", c.Outcome, "rule", c.Rule, "entry", c.List)
	}
	m.gauge("headgate_candidate_waiting", "Requests that wait to be compared with the candidate.", float64(t.Waiting()))
}
