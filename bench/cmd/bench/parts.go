package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/headgate/headgate/bench/internal/gatewaybench"
	"github.com/headgate/headgate/bench/internal/grpcbench"
	"github.com/headgate/headgate/bench/internal/memorybench"
	"github.com/headgate/headgate/bench/internal/outagebench"
	"github.com/headgate/headgate/bench/internal/policybench"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/respbench"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

type progress = func(format string, args ...any)

// partSections measures one part and returns its tables, each with a line about
// the machine.
func partSections(ctx context.Context, part string, short bool, tell progress) ([]report.Section, error) {
	var (
		sections []report.Section
		err      error
	)
	switch part {
	case "memory":
		sections, err = memorySections(ctx, short, tell)
	case "policy":
		sections, err = policySections(ctx, short, tell)
	case "redis":
		sections, err = redisSections(ctx, short, tell)
	case "service":
		sections, err = serviceSections(ctx, short, tell)
	case "grpc":
		sections, err = grpcSections(ctx, short, tell)
	case "rls":
		sections, err = rlsSections(ctx, short, tell)
	case "resp":
		sections, err = respSections(ctx, short, tell)
	case "gateway":
		sections, err = gatewaySections(ctx, short, tell)
	case "outage":
		sections, err = outageSections(ctx, short, tell)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	for i := range sections {
		sections[i].Body = machine() + "\n\n" + sections[i].Body
	}
	return sections, nil
}

func memorySections(ctx context.Context, short bool, tell progress) ([]report.Section, error) {
	plan := memorybench.Full()
	if short {
		plan = memorybench.Short()
	}
	plan.Progress = tell
	o, err := memorybench.Run(ctx, plan, memorybench.Contenders())
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "memory", Body: o.Markdown()}}, nil
}

func policySections(ctx context.Context, short bool, tell progress) ([]report.Section, error) {
	plan := policybench.Full()
	if short {
		plan = policybench.Short()
	}
	plan.Progress = tell
	o, err := policybench.Run(ctx, plan)
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "policy", Body: o.Markdown()}}, nil
}

func redisSections(ctx context.Context, short bool, tell progress) ([]report.Section, error) {
	plan := redisbench.Full()
	if short {
		plan = redisbench.Short()
	}
	plan.Progress = tell
	kinds := []string{"redis"}
	if _, err := exec.LookPath("valkey-server"); err == nil {
		kinds = append(kinds, "valkey")
	} else {
		tell("valkey-server is not in the PATH; its section stays as it is")
	}
	var sections []report.Section
	for _, kind := range kinds {
		s, err := redisSection(ctx, kind, plan)
		if err != nil {
			return nil, err
		}
		sections = append(sections, s)
	}
	return sections, nil
}

func redisSection(ctx context.Context, kind string, plan redisbench.Plan) (_ report.Section, err error) {
	server, err := redisbench.Start(ctx, kind+"-server")
	if err != nil {
		return report.Section{}, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	o, err := redisbench.Run(ctx, server, plan, redisbench.Field())
	if err != nil {
		return report.Section{}, err
	}
	return report.Section{Name: kind, Body: o.Markdown()}, nil
}

// serverModule is where the server's source is, seen from the directory bench.
const serverModule = "../server"

func serviceSections(ctx context.Context, short bool, tell progress) (_ []report.Section, err error) {
	plan := servicebench.Full()
	if short {
		plan = servicebench.Short()
	}
	plan.Progress = tell
	itself, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tell("service: building the server")
	contenders, err := servicebench.Headgate(ctx, serverModule, dir)
	if err != nil {
		return nil, err
	}
	o, err := servicebench.Run(ctx, plan, append(contenders, servicebench.Echoes(itself)...))
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "service", Body: o.Markdown()}}, nil
}

func grpcSections(ctx context.Context, short bool, tell progress) (_ []report.Section, err error) {
	plan := servicebench.Full()
	if short {
		plan = servicebench.Short()
	}
	plan.Progress = tell
	itself, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tell("grpc: building the server")
	o, err := grpcbench.Run(ctx, plan, itself, serverModule, dir)
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "grpc", Body: o.Markdown()}}, nil
}

func rlsSections(ctx context.Context, short bool, tell progress) (_ []report.Section, err error) {
	plan := servicebench.Full()
	if short {
		plan = servicebench.Short()
	}
	plan.Progress = tell
	itself, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, err := redisbench.Start(ctx, "redis-server")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	tell("rls: building the server and envoyproxy/ratelimit")
	o, err := grpcbench.RunRLS(ctx, plan, itself, serverModule, dir, redis.Addr)
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "rls", Body: o.Markdown()}}, nil
}

func respSections(ctx context.Context, short bool, tell progress) (_ []report.Section, err error) {
	plan := servicebench.Full()
	if short {
		plan = servicebench.Short()
	}
	plan.Progress = tell
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tell("resp: building the server")
	o, err := respbench.Run(ctx, plan, serverModule, dir)
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "resp", Body: o.Markdown()}}, nil
}

func outageSections(ctx context.Context, short bool, tell progress) (_ []report.Section, err error) {
	plan := outagebench.Full()
	if short {
		plan = outagebench.Short()
	}
	plan.Progress = tell
	server, err := redisbench.Start(ctx, "redis-server")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	o, err := outagebench.Run(ctx, server, plan)
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "outage", Body: o.Markdown()}}, nil
}

func gatewaySections(ctx context.Context, short bool, tell progress) (_ []report.Section, err error) {
	plan := servicebench.Full()
	if short {
		plan = servicebench.Short()
	}
	plan.Progress = tell
	itself, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tell("gateway: building the server")
	o, err := gatewaybench.Run(ctx, plan, itself, serverModule, dir)
	if err != nil {
		return nil, err
	}
	return []report.Section{{Name: "gateway", Body: o.Markdown()}}, nil
}
