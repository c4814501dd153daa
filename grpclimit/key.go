package grpclimit

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/policy"
)

// Key says what a counter is kept for. Make one with the By functions,
// [Everyone] or [Combine]. A counter is kept under the same key as by a
// policy.Rule of the same name whose Per has the same entries, and as by package
// httplimit: secrets are hashed, addresses brought to one form, and several values
// joined so that no two combinations meet.
type Key struct {
	facts []*fact
	made  bool // by one of the functions, not the zero Key
}

// fact is an entry of the descriptor and how to find it in a call. Facts are
// compared by pointer: two of one name from two places contradict each other.
type fact struct {
	name string
	// find returns the value, or "" if the call has none. It is nil in a mistaken
	// fact only.
	find func(r *reader, c *Call) string
}

// reader finds what needs options to be found.
type reader struct {
	resolver *resolver
	apiKeys  []string // names of metadata, in lower case
}

// The facts that every server knows; see [Policy].
var (
	factAPIKey      = &fact{"api_key", (*reader).apiKey}
	factIP          = &fact{"ip", (*reader).ip}
	factRoute       = &fact{"route", func(_ *reader, c *Call) string { return c.Method }}
	factMethod      = &fact{"method", func(_ *reader, c *Call) string { _, name := split(c.Method); return name }}
	factService     = &fact{"service", func(_ *reader, c *Call) string { return c.Service() }}
	factHost        = &fact{"host", func(_ *reader, c *Call) string { return hostname(c.first(":authority")) }}
	factCertificate = &fact{"certificate", func(_ *reader, c *Call) string { return certificate(c) }}
	factTarget      = &fact{"target", func(_ *reader, c *Call) string { return c.Target }}

	known = []*fact{factAPIKey, factIP, factRoute, factMethod, factService, factHost, factCertificate}
)

// ByIP is a counter for each client address, as [TrustProxies] finds it, with
// IPv6 addresses counted by their prefix; see [IPv6Prefix]. Only a peer that has
// no address, on a Unix socket, lacks this identity.
func ByIP() Key { return Key{[]*fact{factIP}, true} }

// ByAPIKey is a counter for each API key, wherever [APIKeyMetadata] says that it
// stands. The API key is a secret: counters are kept under a hash; see
// [HashKey].
func ByAPIKey() Key { return Key{[]*fact{factAPIKey}, true} }

// ByCertificate is a counter for each client certificate that TLS has verified: by
// its URI, a SPIFFE ID for instance, or else its DNS name, or else its common name.
func ByCertificate() Key { return Key{[]*fact{factCertificate}, true} }

// ByUser is a counter for each user, whom the function finds in the call's context,
// where authentication has put them. An empty name is no user.
func ByUser(user func(context.Context) string) Key {
	f := &fact{name: "user"}
	if user != nil {
		f.find = func(_ *reader, c *Call) string { return user(c.ctx) }
	}
	return Key{[]*fact{f}, true}
}

// ByMethod is a counter for each full method, such as "/package.Service/Method".
// The entry's name is route, for what stands there is the route of an HTTP request.
func ByMethod() Key { return Key{[]*fact{factRoute}, true} }

// ByService is a counter for each service, such as "package.Service".
func ByService() Key { return Key{[]*fact{factService}, true} }

// ByTarget is, for clients, a counter for each target that they connect to.
func ByTarget() Key { return Key{[]*fact{factTarget}, true} }

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
	return Key{[]*fact{newFact(entry, find)}, true}
}

// Everyone is one counter that all calls share.
func Everyone() Key { return Key{made: true} }

// Combine is a counter for each combination of values, such as those of ByUser
// and ByMethod. All of them must be present.
func Combine(keys ...Key) Key {
	k := Key{made: len(keys) > 0}
	for _, part := range keys {
		k.facts = append(k.facts, part.facts...)
		k.made = k.made && part.made
	}
	return k
}

func newFact(name string, find func(*Call) string) *fact {
	f := &fact{name: name}
	if find != nil {
		f.find = func(_ *reader, c *Call) string { return find(c) }
	}
	return f
}

// parts is the key in the words of a policy.
func (k *Key) parts(ipv6Bits int) []policy.Part {
	parts := make([]policy.Part, len(k.facts))
	for i, f := range k.facts {
		parts[i].Entry = f.name
		if f == factIP {
			parts[i].Bits6 = ipv6Bits
		}
	}
	return parts
}

// lacks returns the name of an entry that the key needs and the call has not, or "".
func (k *Key) lacks(facts policy.Descriptor) string {
	for _, f := range k.facts {
		if _, ok := facts.Get(f.name); !ok {
			return f.name
		}
	}
	return ""
}

// authorization is the key whose API key follows the word Bearer.
const authorization = "authorization"

// apiKey returns the first API key that the metadata holds.
func (r *reader) apiKey(c *Call) string {
	for _, name := range r.apiKeys {
		for _, v := range c.Metadata(name) {
			if name == authorization {
				v = bearer(v)
			}
			if v = strings.Trim(v, " \t"); v != "" {
				return v
			}
		}
	}
	return ""
}

// bearer returns the token of an authorization, or "" if its scheme is another.
func bearer(v string) string {
	const scheme = "bearer "
	if len(v) < len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
		return ""
	}
	return v[len(scheme):]
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

// hostname is the host without a port and in lower case, so that one host has
// one spelling.
func hostname(host string) string {
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.Trim(host[colon+1:], "0123456789") == "" {
		host = host[:colon]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// names lists the facts' names for a message.
func names(facts []*fact) []string {
	out := make([]string, len(facts))
	for i, f := range facts {
		out[i] = f.name
	}
	slices.Sort(out)
	return out
}
