package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/telemetry/prom"
)

// load limits how many requests are in progress at an upstream, by an adaptive limit with a queue
// in front of it.
type load struct {
	settings Load
	pressure []Pressure
	gate     flow.Gate // the gate to ask: the queue, observed, and in shadow if so configured
	queue    *shed.Gate
	limit    *adaptive.Gate
	watched  *prom.Gate
	tale     tale
}

// loadParts are the parts of a load. All of them are made before anything is in force, because
// there may be errors.
type loadParts struct {
	knee    *adaptive.Knee
	signals []shed.Signal
}

// newLoadParts makes the parts of an upstream's load.
func newLoadParts(l *Load, pressure []Pressure, files fs.FS) (loadParts, error) {
	knee, err := adaptive.NewKnee(l.Knee(uint64(time.Now().UnixNano())))
	if err != nil {
		return loadParts{}, err
	}
	signals, err := newSignals(pressure, files)
	return loadParts{knee, signals}, err
}

// newSignals makes the signals. files is the root of the machine's file system.
func newSignals(all []Pressure, files fs.FS) (signals []shed.Signal, err error) {
	for _, p := range all {
		var s shed.Signal
		switch p {
		case gatewayfile.Scheduler:
			s = shed.NewScheduler()
		case gatewayfile.CPU:
			s, err = either(files, shed.NewThrottling, "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpu/cpu.stat")
		default:
			s, err = either(files, shed.NewMemory, "sys/fs/cgroup/memory.pressure", "proc/pressure/memory")
		}
		if err != nil {
			return nil, fmt.Errorf("pressure %v: %w", p, err)
		}
		signals = append(signals, s)
	}
	return signals, nil
}

// either returns a signal that uses the first of the files that can be opened.
func either[S shed.Signal](files fs.FS, open func(fs.FS, string) (S, error), names ...string) (shed.Signal, error) {
	var errs []error
	for _, name := range names {
		s, err := open(files, name)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// newLoad returns the load of an upstream. If its options are unchanged, it keeps the load of the
// version before, which knows the limit and what is in progress.
func (g *inner) newLoad(u *Upstream, parts loadParts, before *inner) *load {
	if u.Load == nil {
		g.gates.Forget(u.Name)
		return nil
	}
	if before != nil {
		for _, p := range before.pools {
			if p.Name == u.Name && p.load != nil && p.load.settings == *u.Load && slices.Equal(p.load.pressure, g.options.Pressure) {
				return p.load
			}
		}
	}
	l := &load{settings: *u.Load, pressure: g.options.Pressure, limit: adaptive.New(u.Name, parts.knee)}
	config := u.Load.Queued(u.Name)
	config.Seed = uint64(time.Now().UnixNano())
	config.Signals = parts.signals
	logger := g.options.Logger
	config.SignalFailed = func(err error) {
		logger.Error("a signal of pressure cannot be read", slog.String("upstream", u.Name), slog.Any("error", err))
	}
	var err error
	if l.queue, err = shed.New(l.limit, config); err != nil {
		panic(err) // the options were checked with the same values
	}
	l.watched = g.gates.Watch(u.Name, l.queue, l.queue, l.limit)
	l.gate = l.watched
	if u.Load.Shadow {
		l.gate = flow.Shadow(l.watched)
	}
	l.tale = tale{upstream: u.Name, of: l, logger: logger}
	return l
}

// loadEntries collects the entries for class and tenant, and adds their problems.
func (g *inner) loadEntries(problems *headgate.Problems) {
	for i := range g.options.Upstreams {
		l := g.options.Upstreams[i].Load
		if l == nil {
			continue
		}
		for _, entry := range []string{l.Class, l.Tenant} {
			if entry == "" {
				continue
			}
			if !slices.ContainsFunc(g.facts, func(f fact) bool { return f.name == entry }) {
				problems.Add(fmt.Sprintf("upstreams[%d].load", i), "the load of the upstream %q looks at the entry %q, which no request has", g.options.Upstreams[i].Name, entry)
			}
			g.entries = append(g.entries, entry)
		}
	}
}

// pass asks the gate of the upstream, if the request goes to one with a gate. It returns false if
// it has answered the request.
func (x *exchange) pass() bool {
	if x.refusal != nil || x.route.pool.load == nil || x.route.Load.Exempt {
		return true
	}
	l := x.route.pool.load
	x.load = admission.Load{Gate: l.gate}
	if l.settings.Tenant != "" {
		x.load.Request.Tenant, _ = x.facts.Get(l.settings.Tenant)
	}
	if x.route.Load.Class != nil {
		x.load.Request.Class = *x.route.Load.Class
	} else if l.settings.Class != "" {
		name, _ := x.facts.Get(l.settings.Class)
		if class, err := flow.ParseClass(name); err == nil {
			x.load.Request.Class = class
		}
	}
	if err := x.load.Enter(x.r.Context()); err != nil {
		return x.notLetIn(err)
	}
	return true
}

// notLetIn answers a request that the gate has refused. It returns false.
func (x *exchange) notLetIn(err error) bool {
	rejection, refused := errors.AsType[*flow.Rejection](err)
	switch {
	case !refused && x.r.Context().Err() != nil:
		return x.gone(x.r.Context().Err())
	case !refused:
		return x.cannotCount(err)
	}
	x.outcome = crowded
	p := httplimit.Problem(notice.Shed(x.w.Header(), rejection))
	x.answer(&p)
	return false
}

// beginWork is called when the request is sent to the upstream.
func (x *exchange) beginWork() {
	if x.load.Permit.Held() {
		x.workBegan = time.Now()
		x.load.Permit.Begin()
	}
}

// hearLoad learns about load from the beginning of an answer. The permit is given back when the
// server is done. If the length of the answer is known, that is now, because the rest depends on
// the client; otherwise it is at the end of the answer.
func (x *exchange) hearLoad(res *http.Response) {
	if !x.load.Permit.Held() {
		return
	}
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols, admission.IsEvents(res.Header["Content-Type"]):
		x.load.Permit.Done(flow.Ignore) // a stream lasts as long as the client likes
	case res.ContentLength >= 0:
		x.load.Permit.Done(x.sample(res.StatusCode, res.Header["Grpc-Status"]))
	default:
		x.w.timed = true
	}
}

// endLoad learns about load from the end of an answer without a length.
func (x *exchange) endLoad(res *http.Response) {
	if x.load.Permit.Held() {
		x.load.Permit.Done(x.sample(res.StatusCode, res.Trailer["Grpc-Status"]))
	}
}

// sample returns what an answer says about load, by its status, and by that of gRPC if there is
// one.
func (x *exchange) sample(status int, code []string) flow.Outcome {
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return flow.Overload
	case status >= http.StatusBadRequest:
		return flow.Ignore
	case len(code) > 0 && code[0] != "0":
		switch code[0] {
		case "4", "8", "14": // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE
			return flow.Overload
		}
		return flow.Ignore
	}
	waited := x.w.waited
	if x.body != nil {
		waited += x.body.waitedFor()
	}
	if waited > 5*time.Millisecond && 4*waited > time.Since(x.workBegan) {
		return flow.Ignore // much of the time was spent waiting for the client
	}
	return flow.Success
}

// failedLoad learns about load from a missing answer. Only timeouts count as overload: a server
// that refuses connections is not running.
func (x *exchange) failedLoad(err error) {
	outcome := flow.Ignore
	var late net.Error
	if x.clientFailure() == nil && x.r.Context().Err() == nil && !errors.Is(err, syscall.ECONNREFUSED) &&
		(errors.As(err, &late) && late.Timeout() || errors.Is(err, context.DeadlineExceeded)) {
		outcome = flow.Overload
	}
	x.load.Permit.Done(outcome)
}
