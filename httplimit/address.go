package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/identity"
)

// Source is the name of the header in which trusted proxies hand on the
// client's address. [XForwardedFor] and [Forwarded] are lists that each proxy
// adds to; any other name, such as "X-Real-IP" or "CF-Connecting-IP", is a
// header with a single address that the trusted proxy sets. It is a string.
type Source = identity.Source

// The sources whose form is known.
const (
	XForwardedFor = identity.XForwardedFor
	Forwarded     = identity.Forwarded // RFC 7239
)

// Resolver finds the address of the client that sent a request. It believes a
// forwarded address only when the connection comes from a trusted proxy. The
// zero Resolver trusts nobody: the client is the peer of the connection. It is
// immutable and safe for concurrent use.
type Resolver struct{ of identity.Resolver }

// NewResolver returns a resolver that believes the named header when it comes
// from one of the proxies: prefixes ("10.0.0.0/8"), addresses ("::1"), or "unix"
// for peers on a Unix socket, which have no address. The error is a
// [*headgate.InvalidError] with every mistake; a prefix that trusts every address
// is one, for then any client could pass for another.
func NewResolver(source Source, proxies ...string) (*Resolver, error) {
	res, problems := identity.NewResolver(source, proxies)
	if err := problems.Err("client addresses"); err != nil {
		return nil, err
	}
	return &Resolver{*res}, nil
}

// Client returns the address of the client: IPv4 in its own form, not mapped
// into IPv6, and without a zone. It is the peer of the connection unless that is
// a trusted proxy. Then the source header decides: a list is walked from its
// right end, where the nearest proxy wrote, past trusted proxies to the first
// address that is not one. An entry that is no address ends the walk: the last
// trusted proxy then stands for the client. ok is false if there is no address
// at all, as on a Unix socket.
func (res *Resolver) Client(r *http.Request) (addr netip.Addr, ok bool) {
	return res.of.Client(r.RemoteAddr, r.Header[string(res.of.Source())])
}

// Trusts reports whether the request's connection comes from a trusted proxy, so
// that what its headers say of the client is to be believed.
func (res *Resolver) Trusts(r *http.Request) bool { return res.of.Trusts(r.RemoteAddr) }

// Source is the header that the resolver believes, in canonical form; "" if it
// believes none.
func (res *Resolver) Source() Source { return res.of.Source() }
