package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/headgate/headgate/bench/internal/asyncbench"
	"github.com/headgate/headgate/bench/internal/backendbench"
	"github.com/headgate/headgate/bench/internal/consistencybench"
	"github.com/headgate/headgate/bench/internal/denycachebench"
	"github.com/headgate/headgate/bench/internal/gatewaybench"
	"github.com/headgate/headgate/bench/internal/grpcbench"
	"github.com/headgate/headgate/bench/internal/leasebench"
	"github.com/headgate/headgate/bench/internal/memorybench"
	"github.com/headgate/headgate/bench/internal/outagebench"
	"github.com/headgate/headgate/bench/internal/overheadbench"
	"github.com/headgate/headgate/bench/internal/policybench"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/respbench"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// The pages that are written by runs for the record, seen from the directory bench.
const (
	benchmarks  = "../docs/benchmarks.md"
	consistency = "../docs/consistency.md"
)

// part is what can be measured alone.
type part struct {
	name string
	run  func(ctx context.Context, w *work) (outcome, error)
	page string // where it is recorded; "" is benchmarks
}

// outcome is what a part has measured, as its section of the document.
type outcome interface{ Markdown() string }

// parts are all of them, in their order in the document.
func parts() []part {
	return []part{
		{name: "memory", run: func(ctx context.Context, w *work) (outcome, error) {
			plan := choose(w, memorybench.Full, memorybench.Short)
			plan.Progress = w.tell
			return memorybench.Run(ctx, plan, memorybench.Contenders())
		}},
		{name: "policy", run: func(ctx context.Context, w *work) (outcome, error) {
			plan := choose(w, policybench.Full, policybench.Short)
			plan.Progress = w.tell
			return policybench.Run(ctx, plan)
		}},
		{name: "redis", run: redisPart("redis-server")},
		{name: "valkey", run: redisPart("valkey-server")},
		{name: "backends", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (_ outcome, err error) {
			plan := choose(w, backendbench.Full, backendbench.Short)
			plan.Progress = w.tell
			servers, err := backendbench.Start(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, servers.Stop()) }()
			return backendbench.Run(ctx, redis.Addr, redis.Version, servers, plan)
		})},
		{name: "service", run: func(ctx context.Context, w *work) (outcome, error) {
			w.tell("service: building the server")
			contenders, err := servicebench.Headgate(ctx, serverModule, w.dir)
			if err != nil {
				return nil, err
			}
			return servicebench.Run(ctx, w.plan(), append(contenders, servicebench.Echoes(w.itself)...))
		}},
		{name: "grpc", run: func(ctx context.Context, w *work) (outcome, error) {
			w.tell("grpc: building the server")
			return grpcbench.Run(ctx, w.plan(), w.itself, serverModule, w.dir)
		}},
		{name: "rls", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			w.tell("rls: building the server and envoyproxy/ratelimit")
			return grpcbench.RunRLS(ctx, w.plan(), w.itself, serverModule, w.dir, redis.Addr)
		})},
		{name: "resp", run: func(ctx context.Context, w *work) (outcome, error) {
			w.tell("resp: building the server")
			return respbench.Run(ctx, w.plan(), serverModule, w.dir)
		}},
		{name: "gateway", run: func(ctx context.Context, w *work) (outcome, error) {
			w.tell("gateway: building the server")
			return gatewaybench.Run(ctx, w.plan(), w.itself, serverModule, w.dir)
		}},
		{name: "overhead", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			return overheadbench.Run(ctx, w.plan(), w.itself, redis.Addr)
		})},
		{name: "consistency", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			plan := choose(w, consistencybench.Full, consistencybench.Short)
			plan.Progress = w.tell
			w.tell("consistency: building the server")
			return consistencybench.Run(ctx, plan, redis, serverModule, w.dir)
		}), page: consistency},
		{name: "lease", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			plan := choose(w, leasebench.Full, leasebench.Short)
			plan.Progress = w.tell
			return leasebench.Run(ctx, redis, plan)
		}), page: consistency},
		{name: "async", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			plan := choose(w, asyncbench.Full, asyncbench.Short)
			plan.Progress = w.tell
			return asyncbench.Run(ctx, redis, plan)
		}), page: consistency},
		{name: "denycache", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			plan := choose(w, denycachebench.Full, denycachebench.Short)
			plan.Progress = w.tell
			return denycachebench.Run(ctx, redis, plan)
		}), page: consistency},
		{name: "combined", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			plan := choose(w, redisbench.CombinedFull, redisbench.CombinedShort)
			plan.Progress = w.tell
			return redisbench.RunCombined(ctx, redis, plan)
		}), page: consistency},
		{name: "outage", run: withRedis("redis-server", func(ctx context.Context, w *work, redis *redisbench.Server) (outcome, error) {
			plan := choose(w, outagebench.Full, outagebench.Short)
			plan.Progress = w.tell
			return outagebench.Run(ctx, redis, plan)
		})},
	}
}

// redisPart measures one kind of server.
func redisPart(binary string) func(context.Context, *work) (outcome, error) {
	return withRedis(binary, func(ctx context.Context, w *work, server *redisbench.Server) (outcome, error) {
		plan := choose(w, redisbench.Full, redisbench.Short)
		plan.Progress = w.tell
		return redisbench.Run(ctx, server, plan, redisbench.Field())
	})
}

// withRedis runs a part with a server of its own.
func withRedis(binary string, run func(context.Context, *work, *redisbench.Server) (outcome, error)) func(context.Context, *work) (outcome, error) {
	return func(ctx context.Context, w *work) (_ outcome, err error) {
		server, err := redisbench.Start(ctx, binary)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		return run(ctx, w, server)
	}
}

// serverModule is where the server's source is, seen from the directory bench.
const serverModule = "../server"

// work is what parts are run with.
type work struct {
	short  bool
	tell   func(format string, args ...any)
	itself string // this program
	dir    string // to build in
}

// choose is the plan for a run of that length.
func choose[P any](w *work, full, short func() P) P {
	if w.short {
		return short()
	}
	return full()
}

// plan is that of the parts that measure servers.
func (w *work) plan() servicebench.Plan {
	plan := choose(w, servicebench.Full, servicebench.Short)
	plan.Progress = w.tell
	return plan
}

// section measures a part and returns its section, with a line about the machine. It
// is nil if the part needs a program that is not there.
func (p *part) section(ctx context.Context, short bool, tell func(string, ...any)) (_ *report.Section, err error) {
	w := &work{short: short, tell: tell}
	if w.itself, err = os.Executable(); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
	o, err := p.run(ctx, w)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		tell("%s: %v; its section stays as it is", p.name, err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return &report.Section{Name: p.name, Body: machine() + "\n\n" + o.Markdown()}, nil
}
