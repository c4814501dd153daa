package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/headgate/headgate/bench/internal/consumerbench"
	"github.com/headgate/headgate/bench/internal/insightbench"
	"github.com/headgate/headgate/bench/internal/languagebench"
	"github.com/headgate/headgate/bench/internal/limiterbench"
	"github.com/headgate/headgate/bench/internal/llmbench"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/policybench"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/serverbench"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/bench/internal/storebench"
	"github.com/headgate/headgate/bench/internal/truthbench"
	"github.com/headgate/headgate/bench/internal/tunebench"
)

// benchmarks is the page that runs for the record write, seen from the directory bench.
const benchmarks = "../docs/benchmarks.md"

// part is what can be measured alone.
type part struct {
	name string
	run  measure.Part
	// redis is the program of the server that the part needs for itself, "" if it needs none.
	redis string
}

// parts are all of them, in their order in the document.
func parts() []part {
	const redis, valkey = "redis-server", "valkey-server"
	return []part{
		{name: "sizes", run: limiterbench.Sizes, redis: redis},
		{name: "memory", run: limiterbench.Memory},
		{name: "policy", run: policybench.Run},
		{name: "redis", run: limiterbench.Redis, redis: redis},
		{name: "valkey", run: limiterbench.Redis, redis: valkey},
		{name: "backends", run: storebench.Backends, redis: redis},
		{name: "service", run: serverbench.Service},
		{name: "grpc", run: serverbench.GRPC},
		{name: "rls", run: serverbench.RLS, redis: redis},
		{name: "resp", run: serverbench.RESP},
		{name: "doors", run: serverbench.Doors},
		{name: "gateway", run: serverbench.Gateway},
		{name: "proxies", run: serverbench.Proxies},
		{name: "insight", run: insightbench.Run},
		{name: "dashboard", run: serverbench.Dashboard},
		{name: "overhead", run: serverbench.Overhead, redis: redis},
		{name: "replay", run: tunebench.Replay},
		{name: "load", run: tunebench.Load},
		{name: "truth", run: truthbench.Truth},
		{name: "consumers", run: consumerbench.Run},
		{name: "languages", run: languagebench.Languages, redis: redis},
		{name: "express", run: languagebench.Express, redis: redis},
		{name: "llm", run: llmbench.Run},
		{name: "consistency", run: serverbench.Consistency, redis: redis},
		{name: "lease", run: storebench.Leases, redis: redis},
		{name: "async", run: storebench.Async, redis: redis},
		{name: "denycache", run: storebench.DenyCache, redis: redis},
		{name: "combined", run: limiterbench.Combined, redis: redis},
		{name: "outage", run: storebench.Outage, redis: redis},
	}
}

// section measures a part and returns its section, with a line about the machine. It
// is nil if the part needs a program that is not there.
func (p *part) section(ctx context.Context, short bool, tell func(string, ...any)) (_ *report.Section, err error) {
	text, err := p.measure(ctx, work(short, func(format string, args ...any) { tell(p.name+": "+format, args...) }))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		tell("%s: %v; its section stays as it is", p.name, err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return &report.Section{Name: p.name, Body: machine() + "\n\n" + text.String()}, nil
}

// work is what all parts are run with.
func work(short bool, tell func(string, ...any)) *measure.Work {
	return &measure.Work{Short: short, Source: "../server", Tell: tell}
}

// within runs something with this program's name and a directory that is removed afterwards.
func within(w *measure.Work, run func() error) (err error) {
	if w.Program, err = os.Executable(); err != nil {
		return err
	}
	if w.Dir, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
		return err
	}
	return errors.Join(run(), os.RemoveAll(w.Dir))
}

// measure runs the part with all that it needs.
func (p *part) measure(ctx context.Context, w *measure.Work) (text *report.Text, err error) {
	err = within(w, func() (err error) {
		text, err = p.inside(ctx, w)
		return err
	})
	return text, err
}

// inside runs the part, with a Redis if it asks for one.
func (p *part) inside(ctx context.Context, w *measure.Work) (_ *report.Text, err error) {
	if p.redis != "" {
		if w.Redis, err = servers.StartRedis(ctx, p.redis); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.Redis.Stop()) }()
	}
	return p.run(ctx, w)
}
