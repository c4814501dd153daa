package wire

import (
	"context"
	"sync"

	"google.golang.org/grpc"
)

// Call is what one call of a [Unary] needs. Later calls use it again.
type Call interface {
	// Request returns what the call's message is read into.
	Request() Message
	// Reset forgets the call.
	Reset()
}

// Unary carries out the calls of one method whose messages are [Message] and [Written]. It is safe
// for concurrent use; make one with [NewUnary].
type Unary[C Call] struct {
	info   grpc.UnaryServerInfo
	answer func(ctx context.Context, c C) (any, error)
	pool   sync.Pool // of C
}

// NewUnary returns a method by its full name, such as "/package.Service/Method". Interceptors are
// told that the server is server. newCall makes a call, and answer answers it.
func NewUnary[C Call](server any, fullName string, newCall func() C, answer func(ctx context.Context, c C) (any, error)) *Unary[C] {
	return &Unary[C]{
		info: grpc.UnaryServerInfo{Server: server, FullMethod: fullName}, answer: answer,
		pool: sync.Pool{New: func() any { return newCall() }},
	}
}

// Register adds the generated service, with this method as its only one, to a gRPC server, which
// must have the [Codec].
func (u *Unary[C]) Register(to grpc.ServiceRegistrar, generated grpc.ServiceDesc, method string) {
	generated.HandlerType = (*any)(nil)
	generated.Methods = []grpc.MethodDesc{{
		MethodName: method,
		Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return u.Serve(ctx, decode, interceptor)
		},
	}}
	to.RegisterService(&generated, u.info.Server)
}

// Serve answers one call. The interceptor may be nil.
func (u *Unary[C]) Serve(ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	c := u.pool.Get().(C)
	if err := decode(c.Request()); err != nil {
		return nil, err
	}
	var got any
	var err error
	if interceptor == nil {
		got, err = u.answer(ctx, c)
	} else {
		got, err = interceptor(ctx, c.Request(), &u.info, func(ctx context.Context, _ any) (any, error) { return u.answer(ctx, c) })
	}
	if err != nil {
		// Not given back: after a panic, or a message that is no request, somebody may still hold
		// it, or it is half filled.
		return nil, err
	}
	c.Reset()
	u.pool.Put(c)
	return got, nil
}
