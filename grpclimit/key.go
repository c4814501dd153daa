package grpclimit

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/bindings"
)

// Key says what a counter is kept for. Make one with the By functions,
// [Everyone] or [Combine]. A counter is kept under the same key as by a
// policy.Rule of the same name whose Per has the same entries, and as by package
// httplimit: secrets are hashed, addresses brought to one form, and several values
// joined so that no two combinations meet.
type Key struct{ of bindings.Key[*reader, *Call] }

// fact is an entry of the descriptor and how to find it in a call.
type fact = bindings.Fact[*reader, *Call]

// binding is rules that count by one key.
type binding = bindings.Binding[*reader, *Call]

// by is a key of the values of facts.
func by(facts ...*fact) Key { return Key{bindings.Key[*reader, *Call]{Facts: facts, Made: true}} }

// reader finds what needs options to be found.
type reader struct {
	resolver *resolver
	apiKeys  []string // names of metadata, in lower case
}

// The facts that every server knows; see [Policy].
var (
	factAPIKey      = &fact{Name: "api_key", Find: (*reader).apiKey}
	factIP          = &fact{Name: "ip", Find: (*reader).ip}
	factRoute       = &fact{Name: "route", Find: func(_ *reader, c *Call) string { return c.Method }}
	factMethod      = &fact{Name: "method", Find: func(_ *reader, c *Call) string { _, name := split(c.Method); return name }}
	factService     = &fact{Name: "service", Find: func(_ *reader, c *Call) string { return c.Service() }}
	factHost        = &fact{Name: "host", Find: func(_ *reader, c *Call) string { return httplimit.Hostname(c.first(":authority")) }}
	factCertificate = &fact{Name: "certificate", Find: func(_ *reader, c *Call) string { return certificate(c) }}
	factTarget      = &fact{Name: "target", Find: func(_ *reader, c *Call) string { return c.Target }}

	known = []*fact{factAPIKey, factIP, factRoute, factMethod, factService, factHost, factCertificate}
)

// ByIP is a counter for each client address, as [TrustProxies] finds it, with
// IPv6 addresses counted by their prefix; see [IPv6Prefix]. Only a peer that has
// no address, on a Unix socket, lacks this identity.
func ByIP() Key { return by(factIP) }

// ByAPIKey is a counter for each API key, wherever [APIKeyMetadata] says that it
// stands. The API key is a secret: counters are kept under a hash; see
// [HashKey]. A server ends a call that has more than one word behind Bearer in its
// authorization with INVALID_ARGUMENT, whatever [OnMissing] says: see [httplimit.Bearer].
func ByAPIKey() Key { return by(factAPIKey) }

// ByCertificate is a counter for each client certificate that TLS has verified: by
// its URI, a SPIFFE ID for instance, or else its DNS name, or else its common name.
func ByCertificate() Key { return by(factCertificate) }

// ByUser is a counter for each user, whom the function finds in the call's context,
// where authentication has put them. An empty name is no user.
func ByUser(user func(context.Context) string) Key {
	f := &fact{Name: "user"}
	if user != nil {
		f.Find = func(_ *reader, c *Call) string { return user(c.ctx) }
	}
	return by(f)
}

// ByMethod is a counter for each full method, such as "/package.Service/Method".
// The entry's name is route, for what stands there is the route of an HTTP request.
func ByMethod() Key { return by(factRoute) }

// ByService is a counter for each service, such as "package.Service".
func ByService() Key { return by(factService) }

// ByTarget is, for clients, a counter for each target that they connect to.
func ByTarget() Key { return by(factTarget) }

// ByMetadata is a counter for each value of a key in the metadata that is not a
// secret, such as the name of a tenant; the entry is that key. Clients write metadata
// as they like: use one that the proxy in front of the service sets.
func ByMetadata(name string) Key {
	name = strings.ToLower(name)
	return ByFunc(name, func(c *Call) string { return c.first(name) })
}

// ByFunc is a counter for each value that find returns; "" is none. The entry's
// name, such as "tenant", has letters, digits and _ - . : only. Values of the
// entries "token" and "authorization" are hashed, as API keys are.
func ByFunc(entry string, find func(*Call) string) Key {
	return by(newFact(entry, find))
}

// Everyone is one counter that all calls share.
func Everyone() Key { return by() }

// Combine is a counter for each combination of values, such as those of ByUser
// and ByMethod. All of them must be present.
func Combine(keys ...Key) Key {
	parts := make([]bindings.Key[*reader, *Call], len(keys))
	for i := range keys {
		parts[i] = keys[i].of
	}
	return Key{bindings.Combine(parts...)}
}

func newFact(name string, find func(*Call) string) *fact {
	f := &fact{Name: name}
	if find != nil {
		f.Find = func(_ *reader, c *Call) string { return find(c) }
	}
	return f
}

// authorization is the key whose API key follows the word Bearer.
const authorization = "authorization"

// apiKey returns the first API key that the metadata holds.
func (r *reader) apiKey(c *Call) string {
	for _, name := range r.apiKeys {
		for _, v := range c.Metadata(name) {
			if name == authorization {
				v, _ = httplimit.Bearer(v)
			}
			if v = strings.Trim(v, " \t"); v != "" {
				return v
			}
		}
	}
	return ""
}

// unclear reports whether the metadata have several values where the API key stands, or an
// authorization that cannot be read in one way only; see [httplimit.UnclearAPIKey].
func (r *reader) unclear(c *Call) bool {
	for _, name := range r.apiKeys {
		values := c.Metadata(name)
		if len(values) > 1 {
			return true
		}
		if name != authorization || len(values) == 0 {
			continue
		}
		if _, ok := httplimit.Bearer(values[0]); !ok {
			return true
		}
	}
	return false
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

// nameOf is the certificate's name. The kinds are marked, so that a common name does
// not pass for a URI.
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
