package serverbench

import (
	"context"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// The methods of the echo server.
const (
	echoService = "bench.Echo"
	echoUnary   = "/" + echoService + "/Unary"
	echoStream  = "/" + echoService + "/Stream"
)

// grpcEchoes is the service: what grpc-go and protobuf cost alone. Its two methods are
// written as generated code would have them.
var grpcEchoes = grpc.ServiceDesc{
	ServiceName: echoService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(headgatev1.CheckRequest)
			return m, decode(m)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			for {
				m := new(headgatev1.CheckStreamRequest)
				if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}},
}

// serveGRPC serves with a bare grpc-go server that echoes, until the context ends.
func serveGRPC(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&grpcEchoes, nil)
	server.RegisterService(&rlsEchoes, nil)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(l)
}
