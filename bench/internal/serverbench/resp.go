package serverbench

import (
	"context"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// The shape of the load over RESP: as many commands are on their way as messages are over
// gRPC, and as many connections are used one at a time as over HTTP.
const (
	pipelines = 4
	pipelined = inFlight / pipelines
)

// RESP measures what one check costs the server over the protocol of Redis, beside the same server
// over HTTP and gRPC.
func RESP(ctx context.Context, w *measure.Work) (*report.Text, error) {
	serve, err := serving(ctx, w)
	if err != nil {
		return nil, err
	}
	plan := serverPlan(w)
	rows, err := saturate(ctx, w, plan, respField(plan, serve))
	if err != nil {
		return nil, err
	}
	return respText(plan, rows), nil
}

// The names of what others are compared with.
const (
	checkOverGRPC = "gRPC, Check"
	checkOverHTTP = "HTTP JSON, by rule and key"
)

func ping(string) []string { return []string{"PING"} }

func respField(plan measure.Plan, serve func(args ...string) []string) []contender {
	const allowed = "*12\r\n$7\r\nallowed\r\n:1\r\n"
	byRuleName := func(key string) []string { return []string{"HG.CHECK", ruleName, key} }
	byEntries := func(key string) []string { return []string{"HG.CHECK", "DESC", "api_key", key} }
	throttle := func(key string) []string { return []string{"CL.THROTTLE", key, "999999", "1000000", "3600"} }
	field := []contender{
		{
			name: "RESP, HG.CHECK, pipelined", note: "by rule and key; the answer has the state of the limit", role: measure.Ours,
			load: overRESP(plan.Keys, pipelines, pipelined, allowed, byRuleName).run,
		},
		{
			name: "RESP, HG.CHECK by entries, pipelined", note: "by a descriptor with an API key", role: measure.Ours,
			load: overRESP(plan.Keys, pipelines, pipelined, allowed, byEntries).run,
		},
		{
			name: "RESP, CL.THROTTLE, pipelined", note: "the limit is sent along; five integers are the answer", role: measure.Ours,
			load: overRESP(plan.Keys, pipelines, pipelined, "*5\r\n:0\r\n", throttle).run,
		},
		{
			name: "RESP, PING, pipelined", note: "what the protocol alone costs",
			load: overRESP(plan.Keys, pipelines, pipelined, "+PONG\r\n", ping).run,
		},
		{
			name: "RESP, HG.CHECK, one at a time", note: "by rule and key, as a client without pipelines asks",
			load: overRESP(plan.Keys, plan.Callers, 1, allowed, byRuleName).run,
		},
	}
	for i := range field {
		field[i].command = serve("--listen", "127.0.0.1:0", "--resp-listen", "ADDR")
	}
	return append(field, contender{
		name: checkOverGRPC, note: "a call for each check, by rule and key",
		command: serve("--listen", "127.0.0.1:0", "--grpc-listen", "ADDR"), load: askCheck.over(plan.Keys),
	}, contender{
		name: checkOverHTTP, note: "POST /v1/check, a request for each check",
		command: serve("--listen", "ADDR"), load: overHTTP(plan, checks(plan.Keys, "/v1/check", byRule)),
	})
}

// perCPU is how many checks the server makes in a second of CPU time.
func perCPU(s measure.Sample) float64 { return 1e6 / s.ServerCPU() }

func respText(plan measure.Plan, rows measure.Rows) *report.Text {
	t := new(report.Text)
	t.Say("Closed loop, saturated: %d pipelines of %d commands each; %d calls on their way over gRPC; %d connections one at a time, and over HTTP. "+
		"%s keys, every request admitted; median of %d rounds of %v.\n\n",
		pipelines, pipelined, inFlight, plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	grpc := rows.Named(checkOverGRPC)
	t.Say("%s\n", rows.Table(
		measure.Median("server CPU a check, µs", 0, measure.Sample.ServerCPU),
		measure.Ratio("checks a CPU second ÷ gRPC", grpc, 0, perCPU), measure.Ratio("÷ HTTP JSON", rows.Named(checkOverHTTP), 0, perCPU),
		measure.Median("checks/s, load generator on the same cores", 0, measure.Sample.PerSecond)))
	rows.Notes(t)
	for i := range rows {
		if r := &rows[i]; r.Role == measure.Ours {
			t.AtLeast(5, report.Ratio(r.Median(0, perCPU), grpc.Median(0, perCPU)), "%s: checks a CPU second ÷ gRPC", r.Name)
		}
	}
	return t
}
