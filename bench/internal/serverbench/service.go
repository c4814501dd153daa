package serverbench

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
)

// checkRequest is the body of Headgate's POST /v1/check, as far as it is sent here.
type checkRequest struct {
	Checks []check `json:"checks"`
}

type check struct {
	Rule string `json:"rule"`
	Key  string `json:"key"`
	Cost int64  `json:"cost"`
}

// byRule asks for one check that names rule and key.
func byRule(key string) any {
	return checkRequest{Checks: []check{{Rule: ruleName, Key: key, Cost: 1}}}
}

// byDescriptor leaves it to the server to find the rules and keys that apply.
func byDescriptor(key string) any {
	return map[string]any{"descriptor": map[string]string{"api_key": key}, "cost": 1}
}

// checks is a request for each key, as it goes over the wire: the same every time, so that
// the generator leaves the machine to the server.
func checks(keys int, path string, ask func(key string) any) [][]byte {
	requests := make([][]byte, keys)
	for i := range requests {
		body, err := json.Marshal(ask(workload.Key(i)))
		if err != nil {
			panic("serverbench: a check cannot be encoded: " + err.Error())
		}
		requests[i] = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: headgate\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	return requests
}

// Service measures what one check costs the server over HTTP, beside servers that echo.
func Service(ctx context.Context, w *measure.Work) (*report.Text, error) {
	serve, err := serving(ctx, w)
	if err != nil {
		return nil, err
	}
	plan, command := serverPlan(w), serve("--listen", "ADDR")
	t := new(report.Text)
	t.Say("Closed loop over %d keep-alive connections, saturated; %s keys, every request admitted; median of %d rounds of %v.\n\n",
		plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	_, err = besideJSON.measure(ctx, w, plan, t, append([]contender{
		{
			name: "Headgate, by rule and key", role: measure.Ours, command: command, load: overHTTP(plan, checks(plan.Keys, "/v1/check", byRule)),
		},
		{
			name: "Headgate, by descriptor", role: measure.Ours, command: command, load: overHTTP(plan, checks(plan.Keys, "/v1/check", byDescriptor)),
		},
	}, echoes(w, plan)...))
	return t, err
}

var besideJSON = comparison{
	"server CPU a request, µs", "÷ JSON echo", "requests/s",
	1.6, "server CPU a request ÷ JSON echo",
}

// echoes are the servers that Headgate's is compared with.
func echoes(w *measure.Work, plan measure.Plan) []contender {
	load := overHTTP(plan, checks(plan.Keys, "/v1/check", byRule))
	return []contender{
		{
			name: "net/http JSON echo", role: measure.Floor, command: echoing(w, "json", ""), load: load,
		},
		{
			name: "net/http echo of bytes", command: echoing(w, "bytes", ""), load: load,
		},
	}
}
