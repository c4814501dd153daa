package grpclimit

import (
	"net"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/identity"
)

// resolver finds the address of a client. It believes metadata only if they come from trusted
// proxies.
type resolver struct {
	*identity.Resolver
	key string // of the metadata that are believed; "" for none
}

func newResolver(r *identity.Resolver) resolver {
	return resolver{r, strings.ToLower(string(r.Source()))}
}

func (r resolver) client(peer net.Addr, c *Call) (netip.Addr, bool) {
	if tcp, ok := peer.(*net.TCPAddr); ok && r.key == "" {
		a := tcp.AddrPort().Addr()
		return a.Unmap().WithZone(""), a.IsValid()
	}
	return r.Client(peer.String(), c.Metadata(r.key))
}

// believes reports whether any peer is trusted.
func (r resolver) believes() bool { return r.Source() != "" }

// trusts reports whether a call comes from a trusted proxy.
func (r resolver) trusts(c *Call) bool {
	p := c.peer()
	return p != nil && p.Addr != nil && r.Trusts(p.Addr.String())
}
