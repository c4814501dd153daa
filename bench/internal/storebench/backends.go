package storebench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// The conditions: one caller and many keys, many callers and many keys, many callers and
// one key.
const one, spread, hotKey = 0, 1, 2

// Backends compares PostgreSQL, with and without what makes it forget nothing, and memcached with
// Redis. A run for the record takes about a minute.
func Backends(ctx context.Context, w *measure.Work) (_ *report.Text, err error) {
	plan := measure.Choose(w,
		measure.Plan{Rounds: 7, Slice: 500 * time.Millisecond, Callers: 64, Keys: 10_000},
		measure.Plan{Rounds: 1, Slice: 100 * time.Millisecond, Callers: 8, Keys: 100})
	m, err := servers.StartMemcached(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	p, err := servers.StartPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	var rows measure.Rows
	var stores []headgate.Store
	for _, each := range []struct{ name, url string }{
		{"Redis", w.Redis.URL()},
		{"PostgreSQL", p.URL + "?table=usual"},
		{"PostgreSQL, durable=true", p.URL + "?table=durable&durable=true"},
		{"PostgreSQL, unlogged=true", p.URL + "?table=unlogged&unlogged=true"},
		{"memcached", m.URL},
	} {
		store, err := open(ctx, each.url)
		if err != nil {
			return nil, err
		}
		defer store.Close()
		rows, stores = append(rows, measure.Row{Name: each.name}), append(stores, store)
		if _, err := askBackend(ctx, store, plan, spread); err != nil { // every key is there, and every statement prepared
			return nil, fmt.Errorf("%s: %w", each.name, err)
		}
	}
	err = plan.Turns(ctx, w, rows, []int{one, spread, hotKey}, func(_, condition, i int) (measure.Sample, error) {
		return askBackend(ctx, stores[i], plan, condition)
	})
	return backendsText(plan, rows, w.Redis.Version, m.Version, p.Version), err
}

// open opens the store of a URL, which somebody closes.
func open(ctx context.Context, url string) (interface {
	headgate.Store
	Close()
}, error,
) {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "postgres":
		return postgres.Open(ctx, url, postgres.Timeout(unhurried))
	case "memcached":
		return memcached.Open(ctx, url, memcached.Timeout(unhurried))
	}
	return redis.Open(ctx, url, redis.Timeout(unhurried))
}

// endless has a token bucket that never runs dry, and never fills up between two
// questions.
var endless = headgate.MustRule("bench", headgate.Per(1_000_000_000, 365*24*time.Hour))

// askBackend asks a store for a slice of time.
func askBackend(ctx context.Context, store headgate.Store, plan measure.Plan, condition int) (measure.Sample, error) {
	callers, keys := plan.Callers, plan.Keys
	switch condition {
	case one:
		callers = 1
	case hotKey:
		keys = 1
	}
	limiter := headgate.New(store, endless)
	return measure.Closed(ctx, callers, measure.Until(plan.Slice), func(ctx context.Context, i int) error {
		// A prime step, so that callers who ask at the same time ask for keys far apart.
		d, err := limiter.Allow(ctx, workload.Key(i*7919%keys))
		if err == nil && !d.Allowed {
			err = errors.New("a request was denied that the limit has room for")
		}
		return err
	})
}

func backendsText(plan measure.Plan, rows measure.Rows, versions ...string) *report.Text {
	t, first := new(report.Text), &rows[0]
	t.Say("%s. Closed loop, a token bucket that admits everything; %d callers, %s keys or one; median of %d rounds of %v.\n\n",
		strings.Join(versions, ", "), plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	columns := []measure.Column{measure.Median("one caller: p50, µs", one, measure.Sample.P50)}
	for i, name := range []string{"many keys", "one hot key"} {
		condition := spread + i
		columns = append(
			columns,
			measure.Median(name+": decisions/s", condition, measure.Sample.PerSecond), measure.Ratio("÷ Redis", first, condition, measure.Sample.PerSecond),
			measure.Median("p50, µs", condition, measure.Sample.P50), measure.Median("p99, µs", condition, measure.Sample.P99),
		)
	}
	t.Say("%s", rows.Table(columns...))
	return t
}
