package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
)

// serverStream counts the messages of a stream and limits those of the client.
type serverStream struct {
	grpc.ServerStream
	limits         *Server
	call           *Call
	ctx            context.Context
	received, sent atomic.Int64
}

// Context implements [grpc.ServerStream].
func (s *serverStream) Context() context.Context { return s.ctx }

// SendMsg implements [grpc.ServerStream].
func (s *serverStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.sent.Add(1)
	}
	return err
}

// RecvMsg implements [grpc.ServerStream]. If a message is denied, it returns an error, with which
// the handler should end the stream.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.received.Add(1)
	if !s.limits.messages.Limits() {
		return nil
	}
	return s.limits.message(&Call{Method: s.call.Method, Message: m, ctx: s.ctx})
}
