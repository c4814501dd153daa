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
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/telemetry/prom"
)

// load limits how many requests are in progress at an upstream, by an adaptive limit with a queue
// in front of it.
type load struct {
	settings gatewayfile.Load
	pressure []gatewayfile.Pressure
	gate     flow.Gate // the gate to ask: the queue, observed, and in shadow if so configured
	queue    *shed.Gate
	limit    *adaptive.Gate
	watched  *prom.Gate
	log      shedLog
}

// loadParts are the parts of a load. All of them are made before anything is in force, because
// there may be errors.
type loadParts struct {
	knee    *adaptive.Knee
	signals []shed.Signal
}

// newLoadParts makes the parts of an upstream's load.
func newLoadParts(l *gatewayfile.Load, pressure []gatewayfile.Pressure, files fs.FS) (loadParts, error) {
	knee, err := adaptive.NewKnee(l.Knee(uint64(time.Now().UnixNano())))
	if err != nil {
		return loadParts{}, err
	}
	signals, err := newSignals(pressure, files)
	return loadParts{knee, signals}, err
}

// newSignals makes the signals. files is the root of the machine's file system.
func newSignals(all []gatewayfile.Pressure, files fs.FS) (signals []shed.Signal, err error) {
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
func (g *inner) newLoad(u *gatewayfile.Upstream, parts loadParts, before *inner) *load {
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
	l.log = shedLog{upstream: u.Name, of: l, logger: logger}
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

// upstreamLoad is what one request has to do with the load of its upstream. It is zero if there is no
// gate to ask.
type upstreamLoad struct {
	admission.Load
	began time.Time // when the request went to the upstream, if it has a permit
}

// enter asks the gate of the upstream, if the request goes to one with a gate.
func (u *upstreamLoad) enter(id *identified) error {
	l := id.route.pool.load
	if l == nil || id.route.Load.Exempt {
		return nil
	}
	u.Load = admission.Load{Gate: l.gate}
	if l.settings.Tenant != "" {
		u.Request.Tenant, _ = id.facts.Get(l.settings.Tenant)
	}
	if id.route.Load.Class != nil {
		u.Request.Class = *id.route.Load.Class
	} else if l.settings.Class != "" {
		name, _ := id.facts.Get(l.settings.Class)
		if class, err := flow.ParseClass(name); err == nil {
			u.Request.Class = class
		}
	}
	return u.Enter(id.r.Context())
}

// begin is called when the request is sent to the upstream.
func (u *upstreamLoad) begin() {
	if u.Permit.Held() {
		u.began = time.Now()
		u.Permit.Begin()
	}
}

// answered learns from the beginning of an answer. The permit is given back when the server is done.
// If the length of the answer is known, that is now, because the rest depends on the client;
// otherwise it is at the end of the answer, and answered reports true. waited is how long the
// gateway has waited for the client.
func (u *upstreamLoad) answered(res *http.Response, waited time.Duration) (unfinished bool) {
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols, admission.IsEvents(res.Header["Content-Type"]):
		u.Permit.Done(flow.Ignore) // a stream lasts as long as the client likes
	case res.ContentLength >= 0:
		u.learn(res.StatusCode, res.Header["Grpc-Status"], waited)
	default:
		return true
	}
	return false
}

// learn gives the permit back with what an answer says about load, by its status, and by that of
// gRPC if there is one.
func (u *upstreamLoad) learn(status int, code []string, waited time.Duration) {
	outcome := flow.Success
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		outcome = flow.Overload
	case status >= http.StatusBadRequest:
		outcome = flow.Ignore
	case len(code) > 0 && slices.Contains([]string{"4", "8", "14"}, code[0]): // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE
		outcome = flow.Overload
	case len(code) > 0 && code[0] != "0":
		outcome = flow.Ignore
	case waited > 5*time.Millisecond && 4*waited > time.Since(u.began):
		outcome = flow.Ignore // much of the time was spent waiting for the client
	}
	u.Permit.Done(outcome)
}

// failed learns from a missing answer. Only timeouts count as overload: a server that refuses
// connections is not running. clients says that the client's request was the cause, and left that the
// client has gone.
func (u *upstreamLoad) failed(err error, clients, left bool) {
	outcome := flow.Ignore
	var late net.Error
	switch {
	case clients, errors.Is(err, syscall.ECONNREFUSED):
	case left:
		outcome = flow.Canceled
	case errors.As(err, &late) && late.Timeout(), errors.Is(err, context.DeadlineExceeded):
		outcome = flow.Overload
	}
	u.Permit.Done(outcome)
}

// shedLog logs when an upstream begins to shed requests, how that continues, and when it is over. A
// line for each request would hide all others.
type shedLog struct {
	upstream string
	of       *load
	logger   *slog.Logger

	logged [flow.Classes][flow.Reasons]uint64 // the counts when the last line was logged
	seen   uint64                             // the number of shed requests at the last look
	since  time.Time                          // when shedding began; zero if nothing is shed
	last   time.Time                          // when a request was last seen to be shed
	line   time.Time                          // when the last line was logged
	total  uint64
}

const (
	// The log looks every lookEvery, repeats its warning every warnEvery, and says that shedding is
	// over when nothing was shed for calm.
	lookEvery = time.Second
	warnEvery = 30 * time.Second
	calm      = 10 * time.Second
)

// run looks until ctx ends.
func (t *shedLog) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			t.look(ctx, now)
		}
	}
}

// look logs what has happened since the last look.
func (t *shedLog) look(ctx context.Context, now time.Time) {
	shed := t.of.watched.Shed()
	more := count(shed) - count(t.logged)
	if all := count(shed); all > t.seen {
		t.last, t.seen = now, all
	}
	switch {
	case more > 0 && t.since.IsZero():
		t.since, t.total = now, 0
	case t.since.IsZero():
		return
	case now.Sub(t.last) >= calm:
		t.logger.LogAttrs(ctx, slog.LevelInfo, "an upstream no longer sheds requests", t.mode(),
			slog.String("upstream", t.upstream), slog.Uint64("shed", t.total+more), slog.Duration("within", t.last.Sub(t.since).Round(time.Second)))
		t.logged, t.since, t.line = shed, time.Time{}, time.Time{}
		return
	case now.Sub(t.line) < warnEvery:
		return
	}
	if more == 0 {
		return
	}
	s, base := t.of.queue.Stats(), t.of.limit.Base()
	attrs := []slog.Attr{
		t.mode(), slog.String("upstream", t.upstream), slog.Uint64("shed", more),
		slog.Int64("limit", t.of.limit.Limit()), slog.Int64("in_progress", s.InUse), slog.Int64("waiting", s.Waiting),
		slog.Duration("unloaded_time", base.Round(10*time.Microsecond)), slog.Float64("pressure", t.of.queue.Pressure()),
	}
	for rank := range shed {
		for reason := range shed[rank] {
			if n := shed[rank][reason] - t.logged[rank][reason]; n > 0 {
				attrs = append(attrs, slog.Uint64(flow.ClassOfRank(rank).String()+"."+flow.Reason(reason).String(), n))
			}
		}
	}
	t.logger.LogAttrs(ctx, slog.LevelWarn, "an upstream is overloaded; requests are shed", attrs...)
	t.logged, t.line, t.total = shed, now, t.total+more
}

// mode says whether requests were really shed, or only would have been without the shadow.
func (t *shedLog) mode() slog.Attr {
	if t.of.settings.Shadow {
		return slog.String("mode", "shadow")
	}
	return slog.String("mode", "enforce")
}

func count(all [flow.Classes][flow.Reasons]uint64) (n uint64) {
	for rank := range all {
		for _, one := range all[rank] {
			n += one
		}
	}
	return n
}
