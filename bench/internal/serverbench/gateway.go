package serverbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
)

// The names of the contenders that are compared with each other. The last one is to ask the
// upstream server itself.
const (
	proxyName   = "httputil.ReverseProxy"
	gatewayName = "Headgate gateway, one rule"
	directName  = "no proxy"
)

// threeRules is a policy in which three rules bind each request.
const threeRules = policy + `
  - name: items
    match: { route: "GET /items/{id}" }
    per: [api_key, route]
    limits: [1000000 per 1h]
  - name: everyone
    per: all
    limits: [1000000000 per 1d]
`

// settle has what a request costs under the rule settled when it has been answered, in
// KiB of the answer; what is estimated is not what it costs.
const settle = `settle: [{ rule: ` + ruleName + `, per: 1024, estimate: 4 }]
`

// Gateway measures what one request costs the gateway, and how long it holds it up, beside a bare
// httputil.ReverseProxy: saturated, and at half of that load in an open loop. The upstream server is
// a part of this process.
func Gateway(ctx context.Context, w *measure.Work) (*report.Text, error) {
	upstream, stop, err := serveDocument(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	plan := serverPlan(w)
	asked := items(plan.Keys)
	contenders, err := gatewayField(ctx, w, overHTTP(plan, asked), "http://"+upstream)
	if err != nil {
		return nil, err
	}
	t := new(report.Text)
	t.Say("GET with an answer of %d bytes, from an upstream server on the same machine. Closed loop over %d keep-alive connections, saturated; %s keys, every request admitted; median of %d rounds of %v. All proxies are processes of their own, with the settings that they come with: the gateway lets its heap grow by [16 MiB](operations.md#memory) before it is collected, and the ReverseProxy leaves that to Go.\n\n",
		len(documentBody), plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	rows, err := besideProxy.measure(ctx, w, plan, t, contenders)
	if err != nil {
		return nil, err
	}
	perSecond := rows.Named(gatewayName).Median(0, measure.Sample.PerSecond) / 2
	direct := contender{name: directName, addr: upstream}
	times, err := paced(ctx, w, plan, append([]contender{direct}, contenders[:2]...), asked, perSecond)
	gatewayTimes(t, times, perSecond)
	return t, err
}

// items are the requests of the clients, as they go over the wire.
func items(keys int) [][]byte {
	all := make([][]byte, keys)
	for i := range all {
		all[i] = fmt.Appendf(nil, "GET /items/%d?full=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\nX-API-Key: %s\r\n\r\n", i, workload.Key(i))
	}
	return all
}

func gatewayField(ctx context.Context, w *measure.Work, load load, upstream string) ([]contender, error) {
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	one, err1 := w.Write("one.yaml", policy)
	three, err2 := w.Write("three.yaml", threeRules)
	settled, err3 := w.Write("settle.yaml", settle)
	gateway := func(name, policy string, role measure.Role, args ...string) contender {
		command := append([]string{binary, "gateway", "--listen", "ADDR", "--admin-listen", "127.0.0.1:0", "--upstream", upstream, "--config", policy}, args...)
		return contender{name: name, role: role, command: command, load: load}
	}
	return []contender{
		{
			name: proxyName, role: measure.Floor, command: echoing(w, "proxy", upstream), load: load,
		},
		gateway(gatewayName, one, measure.Ours),
		gateway("Headgate gateway, three rules and routes", three, measure.Other),
		gateway("Headgate gateway, one rule, settled by bytes", one, measure.Other, "--gateway", settled),
		gateway("Headgate gateway, one rule, with the access log", one, measure.Other, "--access-log", "--log-format", "json"),
	}, errors.Join(err1, err2, err3)
}

var besideProxy = comparison{
	"proxy's CPU a request, µs", "÷ ReverseProxy", "requests/s",
	1.25, "CPU a request ÷ ReverseProxy",
}

func gatewayTimes(t *report.Text, times measure.Rows, perSecond float64) {
	t.Say("\nOpen loop at %s requests a second, half of what the gateway passes on when it is saturated:\n\n%s",
		report.Number(perSecond), times.Table(measure.Median("median, ms", 0, medianMS), measure.Median("99 %, ms", 0, p99MS)))
	ours := times.Named(gatewayName).Median(0, p99MS)
	t.AtMost(1, ours-times.Named(directName).Median(0, p99MS), "%s: added to the 99th percentile at half load, ms", gatewayName)
	t.AtMost(1, ours-times.Named(proxyName).Median(0, p99MS), "%s: added to that of ReverseProxy, ms", gatewayName)
}
