package serverbench

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// throttlecrab is the program of the peer.
const throttlecrab = "throttlecrab-server"

// errNoThrottlecrab says where the peer comes from.
var errNoThrottlecrab = fmt.Errorf("%s is not there; scripts/install-test-programs --bench builds it if there are cargo and protoc: %w", throttlecrab, exec.ErrNotFound)

// The limit that the peer is sent with each request, as CL.THROTTLE has it: that of the policy.
const (
	throttleBurst  = "999999"
	throttleCount  = "1000000"
	throttlePeriod = "3600"
)

// crabRequest is the body of throttlecrab's POST /throttle.
type crabRequest struct {
	Key    string `json:"key"`
	Burst  int64  `json:"max_burst"`
	Count  int64  `json:"count_per_period"`
	Period int64  `json:"period"`
}

// doorsField is contenders that are asked in the same way.
type doorsField struct {
	// how they are asked.
	how        string
	contenders []contender
	// bars are upper bounds on our rows.
	bars []doorsBar
}

// doorsBar bounds a figure of ours, divided by that of another row.
type doorsBar struct {
	ours, other string
	figure      measure.Figure
	what        string
	bound       float64
}

// The names of rows that bars speak of.
const (
	doorCheck    = "Headgate, HG.CHECK"
	doorThrottle = "Headgate, CL.THROTTLE"
	doorHTTP     = "Headgate, POST /v1/check"
	doorCrab     = "throttlecrab-server"
	doorRedis    = "redis-server, INCR"
)

// Doors measures what a check costs Headgate's server beside throttlecrab-server, which is written in
// Rust, and beside the INCR of a Redis: one at a time over Redis's protocol, one at a time as JSON
// over HTTP, and pipelined.
func Doors(ctx context.Context, w *measure.Work) (*report.Text, error) {
	crab := servers.Find(throttlecrab)
	if crab == "" {
		return nil, errNoThrottlecrab
	}
	serve, err := serving(ctx, w)
	if err != nil {
		return nil, err
	}
	plan := serverPlan(w)
	t := new(report.Text)
	t.Say("Closed loop, saturated; %s keys, every request admitted; median of %d rounds of %v. %s 0.4.40 answers with whether the request is admitted, the limit, what remains and two times. "+
		"Times are from sending a request, or a whole pipeline, to having all of its answer.\n\n",
		report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice, throttlecrab)
	for _, field := range doorsFields(plan, crab, serve) {
		rows, err := saturate(ctx, w, plan, field.contenders)
		if err != nil {
			return nil, err
		}
		field.write(t, rows)
	}
	return t, nil
}

// write writes the table of one field, and its bars.
func (f *doorsField) write(t *report.Text, rows measure.Rows) {
	floor := rows.Floor()
	t.Say("%s:\n\n%s\n", f.how, rows.Table(
		measure.Median("server CPU a check, µs", 0, measure.Sample.ServerCPU),
		measure.Ratio("÷ "+floor.Name, floor, 0, measure.Sample.ServerCPU),
		measure.Median("p50, ms", 0, measure.Millis(measure.Sample.P50)),
		measure.Median("p99, ms", 0, measure.Millis(measure.Sample.P99)),
		measure.Median("checks/s", 0, measure.Sample.PerSecond)))
	for _, b := range f.bars {
		of := func(name string) float64 { return rows.Named(name).Median(0, b.figure) }
		t.AtMost(b.bound, report.Ratio(of(b.ours), of(b.other)), "%s, %s: %s ÷ %s", f.how, b.ours, b.what, b.other)
	}
}

func doorsFields(plan measure.Plan, crab string, serve func(args ...string) []string) []doorsField {
	const cpu, p99 = "server CPU a check", "p99"
	ours := serve("--listen", "127.0.0.1:0", "--resp-listen", "ADDR")
	theirs := []string{crab, "--redis", "--redis-host", "127.0.0.1", "--redis-port", "PORT", "--log-level", "error"}
	redis := []string{"redis-server", "--bind", "127.0.0.1", "--port", "PORT", "--save", "", "--appendonly", "no"}
	overRESP := func(connections, together int) []contender {
		over := func(name string, role measure.Role, command []string, begin string, arguments func(key string) []string) contender {
			l := commands(plan.Keys, connections, together, begin, arguments)
			return contender{name: name, role: role, command: command, load: l.run}
		}
		return []contender{
			over(doorRedis, measure.Floor, redis, ":", func(key string) []string { return []string{"INCR", key} }),
			over(doorCrab, measure.Other, theirs, "*5\r\n:1\r\n", func(key string) []string {
				return []string{"THROTTLE", key, throttleBurst, throttleCount, throttlePeriod}
			}),
			over(doorCheck, measure.Ours, ours, "*12\r\n$7\r\nallowed\r\n:1\r\n", func(key string) []string { return []string{"HG.CHECK", ruleName, key} }),
			over(doorThrottle, measure.Ours, ours, "*5\r\n:0\r\n", func(key string) []string {
				return []string{"CL.THROTTLE", key, throttleBurst, throttleCount, throttlePeriod}
			}),
		}
	}
	crabbed := checks(plan.Keys, "/throttle", func(key string) any { return crabRequest{key, 999_999, 1_000_000, 3600} })
	const single = 16
	return []doorsField{
		{
			how:        fmt.Sprintf("Redis's protocol, one at a time over %d connections", single),
			contenders: overRESP(single, 1),
			bars: []doorsBar{
				{doorCheck, doorRedis, measure.Sample.ServerCPU, cpu, 1.2},
				{doorCheck, doorCrab, measure.Sample.ServerCPU, cpu, 1},
				{doorCheck, doorCrab, measure.Sample.P99, p99, 1},
			},
		},
		{
			how: fmt.Sprintf("JSON over HTTP, one at a time over %d connections", plan.Callers),
			contenders: []contender{
				{
					name: doorCrab, role: measure.Floor, load: overHTTP(plan, crabbed),
					command: []string{crab, "--http", "--http-host", "127.0.0.1", "--http-port", "PORT", "--log-level", "error"},
				},
				{name: doorHTTP, role: measure.Ours, load: overHTTP(plan, checks(plan.Keys, "/v1/check", byRule)), command: serve("--listen", "ADDR")},
			},
			bars: []doorsBar{
				{doorHTTP, doorCrab, measure.Sample.ServerCPU, cpu, 1},
				{doorHTTP, doorCrab, measure.Sample.P99, p99, 1},
			},
		},
		{
			how:        fmt.Sprintf("Redis's protocol, %d pipelines of %d", pipelines, pipelined),
			contenders: overRESP(pipelines, pipelined),
			bars: []doorsBar{
				{doorCheck, doorCrab, measure.Sample.ServerCPU, cpu, 1},
				{doorThrottle, doorCrab, measure.Sample.ServerCPU, cpu, 1},
			},
		},
	}
}
