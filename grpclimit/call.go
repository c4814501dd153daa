package grpclimit

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Call is what a limit can look at: a call that a server has received, or one that a client is
// about to make. It must not be kept after the function to which it is passed has returned.
type Call struct {
	// Method is the full method, such as "/package.Service/Method".
	Method string
	// Message is the request of a unary call or, for a limit of messages, the message. It is nil
	// when a stream is opened.
	Message any
	// Target is the target of a client's connection; "" in a server.
	Target string

	ctx  context.Context
	md   metadata.MD // read when it is first needed
	read bool
	out  bool // a client's own call
}

// Context is the context of the call.
func (c *Call) Context() context.Context { return c.ctx }

// Metadata returns the values of a key in the metadata that came with the call or, in a client,
// that will go with it. The key must be in lower case. The slice must not be changed.
func (c *Call) Metadata(name string) []string { return c.metadata()[name] }

func (c *Call) metadata() metadata.MD {
	if !c.read {
		if c.read = true; c.out {
			c.md, _ = metadata.FromOutgoingContext(c.ctx)
		} else {
			c.md, _ = metadata.FromIncomingContext(c.ctx)
		}
	}
	return c.md
}

// Service is the service's name, such as "package.Service".
func (c *Call) Service() string {
	service, _ := split(c.Method)
	return service
}

// split takes a full method apart.
func split(method string) (service, name string) {
	service, name, _ = strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service, name
}

// peer is where the call came from, or nil.
func (c *Call) peer() *peer.Peer {
	p, _ := peer.FromContext(c.ctx)
	return p
}

// first is the first value of a key in the metadata.
func (c *Call) first(name string) string {
	if values := c.Metadata(name); len(values) > 0 {
		return values[0]
	}
	return ""
}
