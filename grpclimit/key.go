package grpclimit

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
)

// Key says what calls are counted by. Make one with the By functions, [Everyone] or [Combine]. A
// policy.Rule of the same name whose Per has the same entries makes the same keys, and so does
// package httplimit: secrets are hashed, addresses are brought to one form, and several values are
// joined so that different combinations never give the same key.
type Key struct{ of admission.Key[*Call] }

// fact is an entry of the descriptor and how to find it in a call.
type fact = admission.Fact[*Call]

// by is a key of the values of facts.
func by(facts ...*fact) Key { return Key{admission.By(facts...)} }

// reader finds what needs options to be found.
type reader struct {
	resolver resolver
	apiKeys  identity.Keys // by names in lower case
}

// The facts that every server knows; see [Policy]. Those without a function are found by
// a reader.
var (
	factAPIKey      = &fact{Name: "api_key"}
	factIP          = &fact{Name: "ip"}
	factRoute       = &fact{Name: "route", Find: func(c *Call) string { return c.Method }}
	factMethod      = &fact{Name: "method", Find: func(c *Call) string { _, name := split(c.Method); return name }}
	factService     = &fact{Name: "service", Find: (*Call).Service}
	factHost        = &fact{Name: "host", Find: host, Unclear: received(unclearHost)}
	factCertificate = &fact{Name: "certificate", Find: certificate}
	factTarget      = &fact{Name: "target", Find: func(c *Call) string { return c.Target }}
)

// finders find the facts that depend on options.
func (r *reader) finders() map[*fact]fact {
	return map[*fact]fact{
		factAPIKey: {
			Find:    func(c *Call) string { return r.apiKeys.Of(c.metadata()) },
			Unclear: received(func(c *Call) string { return r.apiKeys.Unclear(c.metadata()) }),
		},
		factIP: {Find: r.ip},
	}
}

// ByIP is a counter for each client address, as [TrustProxies] finds it. IPv6 addresses are counted
// by their prefix; see [IPv6Prefix]. This identity is missing only if the peer has no address, as
// on a Unix socket.
func ByIP() Key { return by(factIP) }

// ByAPIKey is a counter for each API key, which is read as [APIKeyMetadata] says. API keys are
// secret: counters are kept under a hash; see [HashKey]. If a call that a server receives has one
// of these keys several times, or more than one word after Bearer, it ends with INVALID_ARGUMENT,
// whatever [OnMissing] says, because services do not agree on which of them is the key.
func ByAPIKey() Key { return by(factAPIKey) }

// ByCertificate is a counter for each client certificate that TLS has verified. It is named by its
// URI (such as a SPIFFE ID), or if it has none by its DNS name, or else by its common name.
func ByCertificate() Key { return by(factCertificate) }

// ByUser is a counter for each user. The function finds the user in the call's context, where
// authentication has put it. An empty name means that there is no user.
func ByUser(user func(context.Context) string) Key {
	f := &fact{Name: "user"}
	if user != nil {
		f.Find = func(c *Call) string { return user(c.ctx) }
	}
	return by(f)
}

// ByMethod is a counter for each full method, such as "/package.Service/Method". The entry is named
// route, as for HTTP requests.
func ByMethod() Key { return by(factRoute) }

// ByService is a counter for each service, such as "package.Service".
func ByService() Key { return by(factService) }

// ByTarget is for clients: a counter for each target that they connect to.
func ByTarget() Key { return by(factTarget) }

// ByMetadata is a counter for each value of a key in the metadata that is not a secret, such as the
// name of a tenant. The entry has the name of the key. Clients can write any metadata, so use a key
// that the proxy in front of the service sets. A call that a server receives with several values of
// the key ends with INVALID_ARGUMENT.
func ByMetadata(name string) Key {
	name = strings.ToLower(name)
	return by(&fact{
		Name:    name,
		Find:    func(c *Call) string { return c.first(name) },
		Unclear: received(func(c *Call) string { return identity.SeveralLines(c.metadata(), name) }),
	})
}

// received makes unclear apply only to calls that a server receives. What a client sends itself is
// never unclear.
func received(unclear func(*Call) string) func(*Call) string {
	return func(c *Call) string {
		if c.out {
			return ""
		}
		return unclear(c)
	}
}

// ByFunc is a counter for each value that find returns; "" means that there is none. The entry's
// name, such as "tenant", may have letters, digits and _ - . : only. Values of the entries "token"
// and "authorization" are hashed, as API keys are.
func ByFunc(entry string, find func(*Call) string) Key {
	return by(&fact{Name: entry, Find: find})
}

// Everyone is one counter that all calls share.
func Everyone() Key { return by() }

// Combine is a counter for each combination of values, such as those of ByUser and ByMethod. All of
// the values must be present.
func Combine(keys ...Key) Key {
	parts := make([]admission.Key[*Call], len(keys))
	for i := range keys {
		parts[i] = keys[i].of
	}
	return Key{admission.Combine(parts...)}
}

func host(c *Call) string {
	name, _ := identity.Hostname(c.first(":authority"))
	return name
}

func unclearHost(c *Call) string {
	if _, ok := identity.Hostname(c.first(":authority")); !ok {
		return identity.Unhosted
	}
	return ""
}

// ip returns the client's whole address as text.
func (r *reader) ip(c *Call) string {
	p := c.peer()
	if p == nil || p.Addr == nil {
		return ""
	}
	if a, ok := r.resolver.client(p.Addr, c); ok {
		return a.String()
	}
	return ""
}

// certificate names the client by what TLS has verified.
func certificate(c *Call) string {
	p := c.peer()
	if p == nil {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	return nameOf(info.State.VerifiedChains[0][0])
}

// nameOf is the certificate's name. It includes the kind of name, so that a common name cannot pass
// for a URI.
func nameOf(leaf *x509.Certificate) string {
	switch {
	case len(leaf.URIs) > 0:
		return leaf.URIs[0].String()
	case len(leaf.DNSNames) > 0:
		return "dns:" + leaf.DNSNames[0]
	case leaf.Subject.CommonName != "":
		return "cn:" + leaf.Subject.CommonName
	}
	return ""
}

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
