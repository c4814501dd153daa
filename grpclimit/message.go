package grpclimit

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
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

// RecvMsg implements [grpc.ServerStream]. A message that is denied is an error, with
// which the handler is to end the stream.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.received.Add(1)
	if len(s.limits.messages) == 0 {
		return nil
	}
	return s.limits.message(&Call{Method: s.call.Method, Message: m, ctx: s.ctx})
}

// message lets a message pass, at once or after a while, or returns what its stream
// ends with.
func (s *Server) message(c *Call) error {
	cost := int64(1)
	if s.messageCost != nil {
		if cost = s.messageCost(c); cost == 0 {
			return nil
		}
	}
	if cost < 0 || cost > headgate.MaxCount {
		return s.broken(c, costError("MessageCost", c, cost))
	}
	sc := s.get()
	err := s.bind(c, sc, &s.streams, s.find(c, sc), cost)
	if err == nil && len(sc.checks) > 0 {
		err = s.pass(c, sc)
	}
	s.put(sc)
	return err
}

// pass takes the units of a message, again and again if it may wait for them.
func (s *Server) pass(c *Call, sc *scratch) error {
	left := s.hold
	for {
		decisions, err := s.store.Take(c.ctx, headgate.OpTake, sc.checks, sc.decisions[:0])
		if err != nil {
			return s.undecided(c, sc.checks, err)
		}
		sc.decisions = decisions
		v := headgate.NewVerdict(decisions)
		if err := s.wait(c, sc, &v, headgate.Reservation{}); err != nil {
			return err
		}
		if v.Allowed {
			return nil
		}
		wait := v.RetryAfter
		if wait == headgate.Never || wait > left || ends(c.ctx, wait) {
			return s.deny(c, &v)
		}
		if err := s.sleep(c.ctx, wait); err != nil {
			return status.FromContextError(err).Err()
		}
		left -= wait
	}
}

// ends reports whether the context's deadline comes within d.
func ends(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}
