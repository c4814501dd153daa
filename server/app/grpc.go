package app

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	extprocpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/headgate/headgate/server/extproc"
	"github.com/headgate/headgate/server/wire"
)

// The bounds of every gRPC connection, in addition to the timeouts of HTTP.
const (
	// grpcMaxMessage is the largest message. Those with the body of a call to a language model may be
	// as large as grpcMaxBody.
	grpcMaxMessage, grpcMaxBody = 1 << 20, extproc.MaxBody + 1<<20
	// grpcMaxStreams is how many calls one connection may have in flight. A proxy sends all of its
	// checks over one or a few connections. More than this are waiting for an answer only if the
	// store does not answer.
	grpcMaxStreams = 4096
	// The windows are how many bytes one stream, and one connection, may send before the server has
	// read them. Because they are set, they do not grow. Otherwise each stream of a caller that
	// sends and reads no answer could make the server hold 16 MiB.
	grpcStreamWindow, grpcConnectionWindow = 256 << 10, 1 << 20
	// grpcMaxConnections is how many connections there may be. Further ones are closed at once.
	grpcMaxConnections = 10_000
	// A connection that has been silent for grpcPingAfter is sent a ping, and is closed if it has
	// not answered after grpcPingWithin.
	grpcPingAfter, grpcPingWithin = time.Minute, 20 * time.Second
	// grpcPingLeast is the shortest time between two pings of a client. Clients behind proxies and
	// load balancers that drop silent connections early ping that often.
	grpcPingLeast = 10 * time.Second
)

// newGRPC makes the gRPC server with the services that are registered, health
// and reflection. Each service is one line where openDoors calls this.
func (a *App) newGRPC(ready func(context.Context) error, register ...func(grpc.ServiceRegistrar)) *grpcServer {
	observe := &grpcObserver{logger: a.settings.Logger, accessLog: a.settings.AccessLog, metrics: a.ratelimit}
	bound := &grpcBound{most: a.settings.readTimeout + cmp.Or(a.settings.StoreTimeout, time.Second), calls: make(map[string]bool)}
	options := []grpc.ServerOption{
		grpc.InTapHandle(bound.begin),
		grpc.ForceServerCodecV2(boundedCodec{wire.Codec()}),
		grpc.UnaryInterceptor(observe.unary),
		grpc.StreamInterceptor(observe.stream),
		grpc.MaxRecvMsgSize(grpcMaxBody),
		grpc.MaxConcurrentStreams(grpcMaxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InitialWindowSize(grpcStreamWindow),
		grpc.InitialConnWindowSize(grpcConnectionWindow),
		grpc.ConnectionTimeout(readHeaderTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: grpcIdle, Time: grpcPingAfter, Timeout: grpcPingWithin,
			MaxConnectionAge: a.settings.GRPCConnectionAge, MaxConnectionAgeGrace: a.settings.GRPCConnectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcPingLeast, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))),
	}
	options = append(options, a.traces.grpc()...)
	if a.certificates != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(a.certificates.config())))
	}
	s := &grpcServer{grpc.NewServer(options...), newGRPCHealth(ready, a.ending)}
	for _, add := range register {
		add(s)
	}
	for name, service := range s.GetServiceInfo() {
		s.health.services[name] = true
		for _, method := range service.Methods {
			if !method.IsClientStream && !method.IsServerStream {
				bound.calls["/"+name+"/"+method.Name] = true
			}
		}
	}
	// This is the name that probes of envoyproxy/ratelimit ask for.
	s.health.services["ratelimit"] = true
	grpc_health_v1.RegisterHealthServer(s, s.health)
	reflection.Register(s)
	return s
}

// boundedCodec bounds messages by their kind, because a gRPC server has one bound for all.
type boundedCodec struct{ encoding.CodecV2 }

// Unmarshal implements [encoding.CodecV2].
func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if _, body := v.(*extprocpb.ProcessingRequest); !body && data.Len() > grpcMaxMessage {
		return status.Errorf(codes.ResourceExhausted, "the message has %d bytes, may have %d", data.Len(), grpcMaxMessage)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// grpcServer makes a gRPC server usable as a door's server.
type grpcServer struct {
	*grpc.Server
	health *grpcHealth
}

// Serve implements [server].
func (s *grpcServer) Serve(l net.Listener) error {
	err := s.Server.Serve(&boundedListener{Listener: l, free: make(chan struct{}, grpcMaxConnections)})
	if err == nil {
		// A server that was told to end returns this error.
		return grpc.ErrServerStopped
	}
	return err
}

// Shutdown implements [server].
func (s *grpcServer) Shutdown(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.Stop()
		<-ended
		return ctx.Err()
	}
}

// Close implements [server].
func (s *grpcServer) Close() error {
	s.Stop()
	return nil
}

// grpcBound bounds how long a call may take if its caller has set no deadline. Otherwise a call
// whose request never comes would last as long as its connection. Streams may last as long as their
// callers like.
type grpcBound struct {
	most  time.Duration
	calls map[string]bool // not changed once the server serves
}

// begin begins a call.
func (b *grpcBound) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	if _, bounded := ctx.Deadline(); bounded || !b.calls[info.FullMethodName] {
		return ctx, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.most)
	_ = cancel // The context that it is made of ends with the call.
	return ctx, nil
}

// grpcObserver logs calls. It also keeps a panic in one of them from ending the process, as
// net/http does.
type grpcObserver struct {
	logger    *slog.Logger
	accessLog bool
	metrics   *ratelimitMetrics // or nil
}

func (o *grpcObserver) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	defer o.recovered(ctx, info.FullMethod, &err)
	if o.accessLog {
		defer o.log(ctx, info.FullMethod, time.Now(), &err)
	}
	if o.metrics != nil {
		began := time.Now()
		defer func() { o.metrics.called(info.FullMethod, began, err) }()
	}
	return handler(ctx, request)
}

func (o *grpcObserver) stream(service any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer o.recovered(s.Context(), info.FullMethod, &err)
	if o.accessLog {
		defer o.log(s.Context(), info.FullMethod, time.Now(), &err)
	}
	return handler(service, s)
}

func (o *grpcObserver) recovered(ctx context.Context, method string, err *error) {
	if p := recover(); p != nil {
		o.logger.LogAttrs(ctx, slog.LevelError, "a request caused a panic",
			slog.String("method", method), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		*err = status.Error(codes.Internal, "the server has a defect, which is in its log; whether the request was charged is not known")
	}
}

func (o *grpcObserver) log(ctx context.Context, method string, start time.Time, err *error) {
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	o.logger.LogAttrs(ctx, slog.LevelInfo, "request",
		slog.String("method", method), slog.String("status", status.Code(*err).String()),
		slog.Duration("took", time.Since(start)), slog.String("from", from))
}
