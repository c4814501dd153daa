package app

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/prom"
)

// scrape takes the metrics that are computed when they are collected.
type scrape chan<- prometheus.Metric

// scraped makes a [prometheus.Collector] of a function. The registry checks what it collects, and not
// what it describes, because some metrics are absent at times.
type scraped func(scrape)

// Describe implements [prometheus.Collector].
func (scraped) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s scraped) Collect(to chan<- prometheus.Metric) { s(to) }

// gauge and counter add a metric, with the names and values of its labels in turn.
func (m scrape) gauge(name, help string, v float64, labels ...string) {
	m.add(name, help, prometheus.GaugeValue, v, labels)
}

func (m scrape) counter(name, help string, v int64, labels ...string) {
	m.add(name, help, prometheus.CounterValue, float64(v), labels)
}

// part is the value of a label, and the number with it.
type part struct {
	value string
	n     int64
}

// counters adds a metric with one label.
func (m scrape) counters(name, help, label string, parts ...part) {
	for _, p := range parts {
		m.counter(name, help, p.n, label, p.value)
	}
}

func (m scrape) add(name, help string, kind prometheus.ValueType, v float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	m <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

// yes is 1 or 0.
func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collect adds the metrics of the fallback.
func (w *withoutStore) collect(m scrape) {
	s := w.Stats()
	for _, state := range []fallback.State{fallback.Closed, fallback.Open, fallback.HalfOpen} {
		m.gauge("headgate_store_breaker_state", "1 for the state that the circuit breaker before the store is in: closed (the store is asked), open (it is not), half_open (about some of the requests).", yes(s.State == state), "state", state.String())
	}
	m.counter("headgate_store_breaker_opened_total", "How often the breaker has opened.", s.Opened)
	m.counter("headgate_store_failures_total", "Failed calls to the store, except those whose caller went away first.", s.Failures)
	m.counters("headgate_store_probes_total", "Probes of a store that did not answer. Result: answered, failed.", "result",
		part{"answered", s.Probes - s.ProbesFailed}, part{"failed", s.ProbesFailed})
	m.counters("headgate_requests_without_store_total", "Requests that were decided without the store. By: error (no decision), open (let in), local (this server's share).", "by",
		part{"error", s.Refused}, part{"open", s.Open}, part{"local", s.Local})
	m.gauge("headgate_instances", "Headgate servers that share the store. A local share is a limit divided by this number.", float64(s.Nodes))
	m.gauge("headgate_store_learning", "1 while this server also enforces its local share because the store has lost its data, else 0.", yes(s.Learning))
	m.gauge("headgate_store_debts", "Keys with locally admitted units that are yet to be charged to the store.", float64(s.Debts))
	m.counter("headgate_store_debts_dropped_total", "Local admissions that will never be charged to the store, because too many keys were waiting.", s.DebtsDropped)
	m.counter("headgate_store_handed_back_units_total", "Locally admitted units that were charged to the store afterwards.", s.HandedBack)
}

// collect adds the metrics of the layers that save calls to the store, and of the fallback.
func (l *layers) collect(m scrape) {
	l.without.collect(m)
	l.regions.collect(m)
	leases := l.lease.Stats()
	m.gauge("headgate_lease_keys", "Keys with leases: they are requested so often that units are taken in advance.", float64(leases.Keys))
	m.gauge("headgate_lease_held_units", "Leased units that are neither used nor returned yet.", float64(leases.Held))
	m.counter("headgate_leases_total", "Leases taken.", leases.Leases)
	m.counter("headgate_lease_served_total", "Checks admitted with leased units.", leases.Served)
	m.counters("headgate_lease_units_total", "Leased units. What: taken, returned (unused), refilled (unused and not returned, because the bucket was full again), lost (unused and not returned).", "what",
		part{"taken", leases.Taken}, part{"returned", leases.Returned}, part{"refilled", leases.Refilled}, part{"lost", leases.Lost})
	reports := l.async.Stats()
	m.gauge("headgate_async_keys", "Keys of asynchronous rules that are decided from memory.", float64(reports.Keys))
	m.gauge("headgate_async_unreported_units", "Units admitted from memory that are not reported to the store yet.", float64(reports.Unreported))
	m.counters("headgate_async_checks_total", "Checks of asynchronous rules, by what decided: memory, or store (memory knew too little).", "by",
		part{"memory", reports.Local}, part{"store", reports.Asked})
	m.counters("headgate_async_reports_total", "Reports of admitted units to the store. Result: answered, failed.", "result",
		part{"answered", reports.Reports - reports.Failed}, part{"failed", reports.Failed})
	denials := l.denials.Stats()
	m.gauge("headgate_deny_cache_keys", "Denials in the cache.", float64(denials.Keys))
	m.counters("headgate_deny_cache_keys_told_total", "Invalidations for other servers, one a key. Result: sent, dropped (the servers notice later by themselves).", "result",
		part{"sent", denials.Published}, part{"dropped", denials.Dropped})
	m.counters("headgate_deny_cache_messages_total", "Invalidation messages received. Result: heard, unknown (from another version).", "result",
		part{"heard", denials.Received - denials.Unknown}, part{"unknown", denials.Unknown})
	// Without messages there is nobody to listen to.
	if l.carries {
		m.gauge("headgate_deny_cache_listening", "1 while subscribed to the invalidations of other servers, else 0. Absent if the store has no messages.", yes(denials.Listening))
	}
}

// ofMemory adds the metrics of the counters in memory.
func ofMemory(store *memory.Store) scraped {
	return func(m scrape) {
		s := store.Stats()
		m.gauge("headgate_memory_counters", "Counters in memory: those of the memory store, or of what is decided without the store. Idle ones that have not been dropped yet are among them.", float64(s.Counters))
		m.gauge("headgate_memory_bytes", "Memory used by the counters.", float64(s.Bytes))
		m.gauge("headgate_memory_max_bytes", "The limit on the memory used by the counters.", float64(s.MaxBytes))
		m.counter("headgate_memory_shared_total", "Decisions on counters that keys share because memory is full: stricter than the limits say, never laxer.", int64(s.Shared))
		m.counter("headgate_memory_merged_total", "Entries that the logs of sliding windows took without growing because memory is full: stricter than the limits say, never laxer.", int64(s.Merged))
	}
}

// labels name a limit in metrics.
type labels struct{ rule, limit string }

// limits exports the limits of the policy in force: gauges give their numbers, and the series of
// limits that are no longer in the policy end. It is safe for concurrent use.
type limits struct {
	policy   func() decide.Policy
	recorder *prom.Recorder
	hits     *hits
	spending *prom.Spending

	mu      sync.Mutex // guards what follows
	version int64
	all     map[labels]headgate.Limit
}

// now returns the limits of the policy in force.
func (l *limits) now() map[labels]headgate.Limit {
	policy := l.policy()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all != nil && l.version == policy.Version {
		return l.all
	}
	l.all, l.version = make(map[labels]headgate.Limit), policy.Version
	rules := policy.Rules()
	for i := range rules {
		for of := range rules[i].EachLimits() {
			for _, limit := range of.Limits() {
				l.all[labels{of.Name(), limit.String()}] = limit
			}
		}
	}
	return l.all
}

// forget ends the series of limits that are no longer in the policy. It is called before each
// scrape, because requests that began under a former policy may begin a series again.
func (l *limits) forget() {
	now, policy := l.now(), l.policy()
	l.recorder.Keep(func(rule, limit string) bool {
		_, in := now[labels{rule, limit}]
		// Limits that callers bring along are in no policy, but there is only one name for all of
		// them.
		return in || rule == decide.BroughtRule
	})
	l.hits.keep(policy.Set)
	l.spending.Keep(func(rule string) bool { return policy.Rule(rule) != nil })
}

// fresh serves metrics after it has ended the series of what is gone.
func (l *limits) fresh(metrics http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.forget()
		metrics.ServeHTTP(w, r)
	})
}

// collect adds the numbers of the limits in force, and the hits.
func (l *limits) collect(m scrape) {
	l.hits.collect(m)
	for of, limit := range l.now() {
		m.gauge("headgate_limit_units", "The units that a limit of the policy in force grants in its period.", float64(limit.Count), "rule", of.rule, "limit", of.limit)
		m.gauge("headgate_limit_period_seconds", "The period of a limit of the policy in force.", float64(limit.Micros())/1e6, "rule", of.rule, "limit", of.limit)
	}
}

// collect adds the metrics of reloads, whose names begin with the prefix. Their help texts call what is
// reloaded name while it is read, and active once it is in force. Version and hash are those in force;
// without a version, there is nothing in force yet.
func (r *reloads) collect(m scrape, prefix, name, active string, version int64, hash string) {
	for i, result := range results {
		m.counter(prefix+"_reloads_total", "Reloads of the "+name+" since the start. Result: changed, unchanged (the file holds what is in force), failed (what was in force stays).", r.counts[i].Load(), "result", result)
	}
	if version > 0 {
		m.gauge(prefix+"_info", "Always 1; the labels say which is the "+active+".", 1, "version", strconv.FormatInt(version, 10), "hash", hash)
		m.gauge(prefix+"_last_reload_success_timestamp_seconds", "When the "+name+" was last loaded without a mistake, in seconds since 1970.", float64(r.succeeded.Load())/1000)
	}
	m.gauge(prefix+"_last_reload_failed", "1 if the last reload of the "+name+" failed, so that its file does not hold what is in force; else 0.", yes(r.failed.Load() != nil))
}
