package grpclimit

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/httplimit"
)

// resolver finds the address of a client as package httplimit does: it believes
// metadata only from trusted proxies.
type resolver struct {
	trusted *httplimit.Resolver // nil: nobody is trusted
	header  string              // as http.Header has it
	key     string              // as metadata has it
}

func newResolver(source httplimit.Source, proxies []string) (*resolver, error) {
	trusted, err := httplimit.NewResolver(source, proxies...)
	if err != nil {
		return nil, err
	}
	return &resolver{trusted, http.CanonicalHeaderKey(string(source)), strings.ToLower(string(source))}, nil
}

func (r *resolver) client(peer net.Addr, c *Call) (netip.Addr, bool) {
	if r.trusted == nil {
		if tcp, ok := peer.(*net.TCPAddr); ok {
			a := tcp.AddrPort().Addr()
			return a.Unmap().WithZone(""), a.IsValid()
		}
		return new(httplimit.Resolver).Client(&http.Request{RemoteAddr: peer.String()})
	}
	return r.trusted.Client(&http.Request{RemoteAddr: peer.String(), Header: http.Header{r.header: c.Metadata(r.key)}})
}
