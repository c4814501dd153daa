package serverbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
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
	overRESP := func(name string, role measure.Role, l *loop) contender {
		return contender{name: "RESP, " + name, role: role, command: serve("--listen", "127.0.0.1:0", "--resp-listen", "ADDR"), load: l.run}
	}
	field := []contender{
		overRESP("HG.CHECK, pipelined", measure.Ours, commands(plan.Keys, pipelines, pipelined, allowed, byRuleName)),
		overRESP("HG.CHECK by entries, pipelined", measure.Ours, commands(plan.Keys, pipelines, pipelined, allowed, byEntries)),
		overRESP("CL.THROTTLE, pipelined", measure.Ours, commands(plan.Keys, pipelines, pipelined, "*5\r\n:0\r\n", throttle)),
		overRESP("PING, pipelined", measure.Other, commands(plan.Keys, pipelines, pipelined, "+PONG\r\n", ping)),
		overRESP("HG.CHECK, one at a time", measure.Other, commands(plan.Keys, plan.Callers, 1, allowed, byRuleName)),
	}
	return append(field, contender{
		name:    checkOverGRPC,
		command: serve("--listen", "127.0.0.1:0", "--grpc-listen", "ADDR"), load: askCheck.over(plan.Keys),
	}, contender{
		name:    checkOverHTTP,
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
	t.Say("%s", rows.Table(
		measure.Median("server CPU a check, µs", 0, measure.Sample.ServerCPU),
		measure.Ratio("checks a CPU second ÷ gRPC", grpc, 0, perCPU), measure.Ratio("÷ HTTP JSON", rows.Named(checkOverHTTP), 0, perCPU),
		measure.Median("checks/s", 0, measure.Sample.PerSecond)))
	for i := range rows {
		if r := &rows[i]; r.Role == measure.Ours {
			t.AtLeast(5, report.Ratio(r.Median(0, perCPU), grpc.Median(0, perCPU)), "%s: checks a CPU second ÷ gRPC", r.Name)
		}
	}
	return t
}

// commands is the loop that asks about each key in turn, by pipelines of so many commands.
// Every right answer begins with begin.
func commands(keys, connections, together int, begin string, arguments func(key string) []string) *loop {
	l := &loop{connections: connections, answers: together}
	for from := 0; from < keys; from += together {
		var pipeline []byte
		for i := range together {
			pipeline = appendCommand(pipeline, arguments(workload.Key((from+i)%keys)))
		}
		l.messages = append(l.messages, pipeline)
	}
	l.read = func(r *bufio.Reader) error {
		if got, err := r.Peek(len(begin)); err != nil || string(got) != begin {
			return errors.Join(fmt.Errorf("an answer begins with %q, not with %q", got, begin), err)
		}
		return skipRESP(r)
	}
	return l
}

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// skipRESP reads one answer of RESP2.
func skipRESP(r *bufio.Reader) error {
	for left := 1; left > 0; left-- {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("reading an answer: %w", err)
		}
		kind := line[0]
		if kind == '+' || kind == ':' {
			continue
		}
		text := strings.TrimSuffix(string(line[1:]), "\r\n")
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < -1 || kind != '$' && kind != '*':
			return fmt.Errorf("the server answered %q", line)
		case kind == '*':
			left += max(n, 0)
		case n >= 0:
			if _, err := r.Discard(n + len("\r\n")); err != nil {
				return fmt.Errorf("reading a string of %d bytes: %w", n, err)
			}
		}
	}
	return nil
}
