package app

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// dial connects to the gRPC door.
func (r *running) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	conn, err := grpc.NewClient(r.Addr("grpc").String(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func health(t *testing.T, conn *grpc.ClientConn, service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	return answer.GetStatus(), err
}

const serving, notServing = grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING

func TestGRPCIsServedOnlyIfAskedFor(t *testing.T) {
	r := start(t, Settings{})
	if addr := r.Addr("grpc"); addr != nil {
		t.Errorf("gRPC is served on %v", addr)
	}
}

func TestGRPCHealthAndReflection(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", AccessLog: true})
	conn := r.dial(t)
	if got, err := health(t, conn, ""); err != nil || got != serving {
		t.Errorf("health: %v, %v", got, err)
	}
	if _, err := health(t, conn, "there.is.no.Such"); status.Code(err) != codes.NotFound {
		t.Errorf("the health of an unknown service: %v", err)
	}
	list, err := grpc_health_v1.NewHealthClient(conn).List(t.Context(), &grpc_health_v1.HealthListRequest{})
	if err != nil || list.GetStatuses()[""].GetStatus() != serving {
		t.Errorf("the list: %v, %v", list, err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || !strings.Contains(answer.String(), "grpc.health.v1.Health") {
		t.Errorf("reflection: %v, %v", answer, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if log := r.log.String(); !strings.Contains(log, "method=/grpc.health.v1.Health/Check status=OK") || !strings.Contains(log, "status=NotFound") {
		t.Errorf("the access log: %s", log)
	}
}

// TestGRPCWatchEndsWithTheServer leaves a call of Watch open, which a graceful
// shutdown must not wait for.
func TestGRPCWatchEndsWithTheServer(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", ShutdownTimeout: time.Minute})
	watch, err := grpc_health_v1.NewHealthClient(r.dial(t)).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := watch.Recv(); err != nil || answer.GetStatus() != serving {
		t.Fatalf("the first answer: %v, %v", answer, err)
	}
	r.stop()
	if answer, err := watch.Recv(); err != nil || answer.GetStatus() != notServing {
		t.Errorf("the answer at the end: %v, %v", answer, err)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// held is a service whose calls last until they are told to end.
type held struct{ entered, leave chan struct{} }

func (h held) register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Held", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(grpc_health_v1.HealthCheckRequest)
			if err := decode(in); err != nil {
				return nil, err
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/test.Held/Call"}, func(ctx context.Context, _ any) (any, error) {
				if in.GetService() == "panic" {
					panic("as it was asked to")
				}
				h.entered <- struct{}{}
				select {
				case <-h.leave:
					return &grpc_health_v1.HealthCheckResponse{}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
		},
	}}}, h)
}

// startHeld serves the service on its own, as a door does.
func startHeld(t *testing.T) (s *grpcServer, h held, call func(service string) error, log *buffer) {
	t.Helper()
	r := start(t, Settings{})
	h = held{make(chan struct{}), make(chan struct{})}
	s = r.newGRPC(func(context.Context) error { return nil }, h.register)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = s.Close()
		if err := <-ended; unlessClosed(err) != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, h, func(service string) error {
		return conn.Invoke(t.Context(), "/test.Held/Call", &grpc_health_v1.HealthCheckRequest{Service: service}, new(grpc_health_v1.HealthCheckResponse))
	}, r.log
}

func TestGRPCShutdownWaitsForCalls(t *testing.T) {
	s, h, call, _ := startHeld(t)
	answered := make(chan error, 1)
	go func() { answered <- call("") }()
	<-h.entered
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	h.leave <- struct{}{}
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestGRPCShutdownCutsOffInTheEnd(t *testing.T) {
	s, h, call, _ := startHeld(t)
	answered := make(chan error, 1)
	go func() { answered <- call("") }()
	<-h.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that was cut off: %v", err)
	}
}

func TestGRPCOutlivesAPanic(t *testing.T) {
	_, _, call, log := startHeld(t)
	for range 2 {
		if err := call("panic"); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "as it was asked to") {
			t.Errorf("the answer to a panic: %v", err)
		}
	}
	if text := log.String(); !strings.Contains(text, "as it was asked to") || !strings.Contains(text, "method=/test.Held/Call") {
		t.Errorf("the log: %s", text)
	}
}

// TestGRPCConnectionAge: a client is told to make another connection, and no call fails for it.
func TestGRPCConnectionAge(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", GRPCConnectionAge: time.Second, GRPCConnectionGrace: time.Minute})
	conn := r.dial(t, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if got, err := health(t, conn, ""); err != nil || got != serving {
		t.Fatalf("%v, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the connection lasts")
	}
	if got, err := health(t, conn, ""); err != nil || got != serving {
		t.Errorf("over another connection: %v, %v", got, err)
	}
}

func TestGRPCAddressIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = New(t.Context(), Settings{Listen: "127.0.0.1:0", GRPCListen: l.Addr().String()})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error is %v", err)
	}
}

func TestGRPCListenIsChecked(t *testing.T) {
	_, err := New(t.Context(), Settings{GRPCListen: "9090"})
	var settings *SettingsError
	if !errors.As(err, &settings) || !strings.Contains(err.Error(), `--grpc-listen: "9090" is not host:port`) {
		t.Errorf("error is %v", err)
	}
}

// TestGRPCCallsAreBounded: a call that never sends its request ends all the same,
// and a stream that says nothing does not.
func TestGRPCCallsAreBounded(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", StoreTimeout: time.Millisecond, readTimeout: 100 * time.Millisecond})
	conn := r.dial(t)
	silent := func(method string) grpc.ClientStream {
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "/headgate.v1.Headgate/Check"} {
		if err := silent(method).RecvMsg(new(grpc_health_v1.HealthCheckResponse)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s: %v", method, err)
		}
	}
	r.stop()
	if answer, err := watch.Recv(); err != nil || answer.GetStatus() != notServing {
		t.Errorf("the stream: %v, %v", answer, err)
	}
}
