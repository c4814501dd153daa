package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/identity"
)

// Source is the name of the header in which trusted proxies pass on the client's address.
// [XForwardedFor] and [Forwarded] are lists to which each proxy adds. Any other name, such as
// "X-Real-IP" or "CF-Connecting-IP", is a header with a single address, which the trusted proxy
// sets. It is a string.
type Source = identity.Source

// The sources that are lists.
const (
	XForwardedFor = identity.XForwardedFor
	Forwarded     = identity.Forwarded // RFC 7239
)

// Resolver finds the address of the client that sent a request. It believes a
// forwarded address only when the connection comes from a trusted proxy. The
// zero Resolver trusts nobody: the client is the peer of the connection. It is
// immutable and safe for concurrent use.
type Resolver struct{ of identity.Resolver }

// NewResolver returns a resolver that believes the named header if it comes from one of the
// proxies. A proxy is a prefix ("10.0.0.0/8"), an address ("::1"), or "unix" for all peers on a
// Unix socket, which have no address. The error is a [*headgate.InvalidError] with every mistake. A
// prefix that covers all addresses is a mistake, because any client could then pretend to be
// another one.
func NewResolver(source Source, proxies ...string) (*Resolver, error) {
	res, problems := identity.NewResolver(source, proxies)
	if err := problems.Err("client addresses"); err != nil {
		return nil, err
	}
	return &Resolver{*res}, nil
}

// Client returns the client's address: an IPv4 address as such, not mapped into IPv6, and without a
// zone. Usually it is the peer of the connection. If that is a trusted proxy, the source header
// decides. A list is read from its right end, where the nearest proxy has written; the first
// address that is not a trusted proxy is the client. If an entry is not an address, the
// trusted proxy that was read last counts as the client. ok is false if there is no address at all,
// as on a Unix socket.
func (res *Resolver) Client(r *http.Request) (addr netip.Addr, ok bool) {
	return res.of.Client(r.RemoteAddr, r.Header[string(res.of.Source())])
}

// Trusts reports whether the request comes from a trusted proxy, so that its headers about the
// client can be believed.
func (res *Resolver) Trusts(r *http.Request) bool { return res.of.Trusts(r.RemoteAddr) }

// Source is the header that the resolver believes, in canonical form; "" if it
// believes none.
func (res *Resolver) Source() Source { return res.of.Source() }
