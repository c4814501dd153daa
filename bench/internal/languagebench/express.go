package languagebench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// Express measures a site in Express with each of its limiters, asked by one connection and by many. A
// run for the record takes about two minutes.
func Express(ctx context.Context, w *measure.Work) (_ *report.Text, err error) {
	p := measure.Choose(w, plan{measure.Plan{Rounds: 3, Slice: 3 * time.Second, Callers: 16, Keys: 1000}, time.Second},
		plan{measure.Plan{Rounds: 1, Slice: time.Second, Callers: 4, Keys: 10}, time.Second / 2})
	site, err := data("node/site.js")
	if err != nil {
		return nil, err
	}
	peers, err := tool("node-peers-1")
	if err != nil {
		return nil, err
	}
	ours, err := filepath.Abs("../client/node")
	if err != nil {
		return nil, err
	}
	const one, many = 0, 1
	rows := measure.Rows{
		{Name: "bare", Role: measure.Floor, Note: "no limit"},
		{Name: "headgate", Role: measure.Ours, Note: "the middleware, which asks over Redis's protocol, and the service, which counts in Redis"},
		{Name: "headgate, memory", Role: measure.Ours, Note: "the same, and the service counts in memory"},
		{Name: "headgate, HTTP", Role: measure.Ours, Note: "the middleware asks over HTTP, and the service counts in Redis"},
		{Name: "express-rate-limit", Note: "in Redis, by rate-limit-redis and node-redis"},
	}
	asked := make(map[string]string) // the URLs of the services, by the name of the row
	for name, of := range map[string]struct {
		scheme, store string
		listen        []string
	}{
		"headgate":         {"redis", w.Redis.URL(), []string{"--listen", "127.0.0.1:0", "--resp-listen", "ADDR"}},
		"headgate, memory": {"redis", "memory", []string{"--listen", "127.0.0.1:0", "--resp-listen", "ADDR"}},
		"headgate, HTTP":   {"http", w.Redis.URL(), []string{"--listen", "ADDR"}},
	} {
		service, failed := serve(ctx, w, of.store, "algorithm: fixed_window, limits: [1000000 per 1h from first request]", of.listen...)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, service.Stop()) }()
		asked[name] = of.scheme + "://" + service.Addr
	}
	err = p.Turns(ctx, w, rows, []int{one, many}, func(_, condition, i int) (s measure.Sample, err error) {
		if err := w.Redis.Flush(ctx); err != nil {
			return s, err
		}
		contender, _, _ := strings.Cut(rows[i].Name, ",")
		express, err := servers.Start(ctx, []string{
			"env", "NODE_ENV=production", "NODE_PATH=" + filepath.Join(peers, "node_modules"), "PACKAGE=" + ours, "CONTENDER=" + contender, "REDIS=" + w.Redis.URL(), "HEADGATE=" + asked[rows[i].Name],
			"node", site, "PORT",
		})
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, express.Stop()) }()
		q := p
		if condition == one {
			q.Callers = 1
		}
		if _, _, err := q.ask(ctx, express.Addr, "/free", p.warm); err != nil {
			return s, err
		}
		s, _, err = q.ask(ctx, express.Addr, "/free", p.Slice)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	text := new(report.Text)
	text.Say("Express in one process, a closed loop, %d keys, fixed windows from the first request; the median of %d rounds of %v.\n\n", p.Keys, p.Rounds, p.Slice)
	table := &report.Table{Columns: []string{"Express with", "p50, ms", "p50 added, ms", "p99, ms", fmt.Sprintf("p50 added of %d", p.Callers), "requests/s of " + strconv.Itoa(p.Callers)}}
	added := func(r *measure.Row, condition int) float64 {
		p50 := measure.Millis(measure.Sample.P50)
		return r.Median(condition, p50) - rows[0].Median(condition, p50)
	}
	for i := range rows {
		r := &rows[i]
		table.Add(r.Name, report.Number(r.Median(one, measure.Millis(measure.Sample.P50))), report.Number(added(r, one)), report.Number(r.Median(one, measure.Millis(measure.Sample.P99))),
			report.Number(added(r, many)), report.Number(r.Median(many, measure.Sample.PerSecond)))
	}
	text.Say("%s\n", table)
	rows.Notes(text)
	peer := added(rows.Named("express-rate-limit"), one)
	text.AtMost(1, added(rows.Named("headgate"), one)/peer, "Express: p50 added ÷ that of express-rate-limit")
	text.AtMost(1, added(rows.Named("headgate, memory"), one)/peer, "Express, the service counts in memory: p50 added ÷ that of express-rate-limit")
	return text, nil
}
