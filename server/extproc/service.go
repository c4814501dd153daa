package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/server/decide"
)

// Name is the full name of the gRPC service.
const Name = "envoy.service.ext_proc.v3.ExternalProcessor"

// Metadata is the name of the gRPC metadata in which Envoy sends the parameters of a filter or route,
// in the form of a query: api, over_max_output, unfinished and other_paths, as in the llm section of
// a gateway file. Without api, requests for Messages are Anthropic's and all others OpenAI's.
const Metadata = "headgate-llm"

// MaxBody is the maximum size of a call's body, in bytes, also when it is unpacked.
const MaxBody = 32 << 20

// warnEvery is the minimum time between log entries about the same mistake.
const warnEvery = 10 * time.Second

// Options are the settings of a service.
type Options struct {
	// Describe makes an ask one about the request with the given headers, whose names are as Envoy
	// sends them. peer is the address that connected to Envoy, or "". maxDelay is how long the
	// request may be held. A refused request must not pass. The error ends the stream. Required.
	Describe func(ctx context.Context, peer string, header map[string][]string, ask *decide.Ask) (maxDelay time.Duration, refused *httplimit.Problem, err error)
	// Dialect selects the headers that tell clients their limits, next to those of the provider.
	Dialect httplimit.Dialect
	// Settled is called for each reservation that has ended. It must be quick and safe for concurrent
	// use. Nil means that nothing is called.
	Settled func(Settlement)
	// Logger gets what the operator should know. Nil means no log.
	Logger *slog.Logger
}

// Settlement is how a reservation has ended.
type Settlement uint8

// The settlements.
const (
	// Settled means at the actual cost.
	Settled Settlement = iota
	// Estimated means that the actual cost is not known, so an estimate stays charged.
	Estimated
	// Late means that the reservation had expired, and what was missing was charged.
	Late
	// Failed means that the store did not settle it: it stays charged as it was reserved.
	Failed

	// Settlements is the number of them.
	Settlements
)

// String returns "settled", "estimated", "late" or "failed".
func (s Settlement) String() string {
	return [...]string{"settled", "estimated", "late", "failed"}[s]
}

// Service processes the requests and answers that Envoys send. It is safe for concurrent use; make it
// with [New].
type Service struct {
	pb.UnimplementedExternalProcessorServer

	decider decide.Decider
	options Options
	habits  llm.Habits // of calls
	open    atomic.Int64
	warned  atomic.Int64 // when a mistake was last logged, in Unix nanoseconds
}

// New returns a service that asks decider.
func New(decider decide.Decider, options Options) *Service {
	if options.Settled == nil {
		options.Settled = func(Settlement) {}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{decider: decider, options: options}
}

// Register adds the service to a gRPC server, which must take messages of [MaxBody].
func (s *Service) Register(to grpc.ServiceRegistrar) { pb.RegisterExternalProcessorServer(to, s) }

// Streams is how many requests are being processed.
func (s *Service) Streams() int64 { return s.open.Load() }

// Process processes one request and its answer. The stream ends with the request, or before it if the
// client or the Envoy goes away.
func (s *Service) Process(wire grpc.BidiStreamingServer[pb.ProcessingRequest, pb.ProcessingResponse]) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	x := &exchange{s: s, ctx: wire.Context()}
	if err := x.configure(); err != nil {
		return err
	}
	defer x.settle()
	for {
		m, err := wire.Recv()
		switch {
		case errors.Is(err, io.EOF), x.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case m.GetObservabilityMode():
			return s.mistaken(x.ctx, "observability_mode is on, in which Envoy does not wait for a decision; use a rule with mode: shadow")
		}
		answer, err := x.process(m)
		if err != nil {
			return err
		}
		if err := wire.Send(answer); err != nil {
			return err
		}
		if x.over {
			x.settle()
		}
	}
}

// mistaken returns the error for an Envoy that is not configured for the service, and logs it now and
// then.
func (s *Service) mistaken(ctx context.Context, problem string) error {
	now, last := time.Now().UnixNano(), s.warned.Load()
	if now-last > int64(warnEvery) && s.warned.CompareAndSwap(last, now) {
		s.options.Logger.ErrorContext(ctx, "an Envoy is not configured for ext_proc; its requests fail or pass unlimited, as its failure_mode_allow says", slog.String("problem", problem))
	}
	return status.Error(codes.InvalidArgument, problem)
}

// configure reads the parameters of the stream.
func (x *exchange) configure() error {
	given := metadata.ValueFromIncomingContext(x.ctx, Metadata)
	if len(given) > 1 {
		return x.s.mistaken(x.ctx, "the metadata "+Metadata+" are there more than once")
	}
	values, err := url.ParseQuery(strings.Join(given, ""))
	if err != nil {
		return x.s.mistaken(x.ctx, fmt.Sprintf("the metadata %s cannot be read: %v", Metadata, err))
	}
	for name, list := range values {
		set, known := parameters[name]
		if !known {
			return x.s.mistaken(x.ctx, fmt.Sprintf("%q is no parameter of %s, which are %s", name, Metadata, strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")))
		}
		at := slices.Index(set.values, list[0])
		if at < 0 || len(list) > 1 {
			return x.s.mistaken(x.ctx, fmt.Sprintf("%q of %s is %q, must be one of %s", name, Metadata, strings.Join(list, ", "), strings.Join(set.values, ", ")))
		}
		set.to(&x.provider, at)
	}
	x.byPath = !values.Has("api")
	return nil
}

// parameters has what each parameter can be, and what it sets by the place of its value.
var parameters = map[string]struct {
	values []string
	to     func(p *llm.Provider, at int)
}{
	"api":             {[]string{llm.OpenAI.String(), llm.Anthropic.String(), llm.Compatible.String()}, func(p *llm.Provider, at int) { p.API = llm.API(at) }},
	"over_max_output": {[]string{"reduce", "refuse"}, func(p *llm.Provider, at int) { p.RefuseOutput = at == 1 }},
	"unfinished":      {[]string{"reserved", "seen"}, func(p *llm.Provider, at int) { p.SettleSeen = at == 1 }},
	"other_paths":     {[]string{"refuse", "pass"}, func(p *llm.Provider, at int) { p.PassOthers = at == 1 }},
}
