package grpcbench

import (
	"context"
	"errors"
	"fmt"
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

// echoes is the service: what grpc-go and protobuf cost alone. Its two methods are
// written as generated code would have them.
var echoes = grpc.ServiceDesc{
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

// Serve runs a bare grpc-go server that echoes, until the context ends.
func Serve(ctx context.Context, listen string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("grpcbench: %w", err)
	}
	server := grpc.NewServer()
	server.RegisterService(&echoes, nil)
	server.RegisterService(&rlsEchoes, nil)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(l); err != nil {
		return fmt.Errorf("grpcbench: %w", err)
	}
	return nil
}
