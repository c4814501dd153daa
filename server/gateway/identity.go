package gateway

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// fact says how to find an entry of a request. An empty value means that the request does not have
// the entry.
type fact struct {
	name string
	find func(x *exchange) string
}

// facts returns the entries that the gateway can find, and how.
func facts(id *Identity) []fact {
	all := []fact{
		{"ip", (*exchange).clientIP},
		{"route", func(x *exchange) string { return x.routeName() }},
		{"method", func(x *exchange) string { return x.r.Method }},
		{"host", func(x *exchange) string { return x.host }},
		{"path", func(x *exchange) string { return x.path }},
		{"api_key", (*exchange).apiKey},
	}
	for name, header := range id.Headers {
		all = append(all, fact{name, func(x *exchange) string { return firstValue(x.r.Header, header) }})
	}
	for name, header := range id.Trusted {
		all = append(all, fact{name, func(x *exchange) string {
			if !x.trusted {
				return ""
			}
			return firstValue(x.r.Header, header)
		}})
	}
	for name, field := range id.Certificate {
		all = append(all, fact{name, func(x *exchange) string { return certified(x.r, field) }})
	}
	if id.JWT != nil {
		for i, name := range claimNames(id.JWT) {
			all = append(all, fact{name, func(x *exchange) string {
				if x.token == nil {
					return ""
				}
				return x.token.values[i]
			}})
		}
	}
	return all
}

// claimNames returns the entries that come from tokens, in the order in which their values are
// kept.
func claimNames(j *JWT) []string {
	names := make([]string, 0, len(j.Claims))
	for name := range j.Claims {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// firstValue returns the first value of a header, whose name is in canonical form. Further lines of
// the header are ignored, because a proxy that sets the header leaves only one.
func firstValue(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// apiKey returns the API key, or "" if there is none.
func (x *exchange) apiKey() string {
	key := x.g.names.keys.Of(x.r.Header)
	if key == "" && x.token == nil {
		x.g.unread.Look(x.r.Context(), x.g.options.Logger, x.r.Header)
	}
	return key
}

// clientIP returns the client's address, or "" if it has none.
func (x *exchange) clientIP() string {
	if !x.ipKnown {
		x.ip, x.ipKnown = "", true
		if a, ok := x.g.options.Identity.Resolver.Client(x.r); ok {
			var buf [64]byte
			text := a.AppendTo(buf[:0])
			// Usually the text is a part of the request, and is used from there.
			if s := x.r.RemoteAddr; len(s) >= len(text) && s[:len(text)] == string(text) {
				x.ip = s[:len(text)]
			} else {
				x.ip = string(text)
			}
		}
	}
	return x.ip
}

// certified returns a field of the certificate that the client has proved to hold, or "".
func certified(r *http.Request, field CertificateField) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	c := r.TLS.PeerCertificates[0]
	switch field {
	case CommonName:
		return c.Subject.CommonName
	case DNSName:
		return first(c.DNSNames)
	case Email:
		return first(c.EmailAddresses)
	case URI:
		if len(c.URIs) > 0 {
			return c.URIs[0].String()
		}
	case Fingerprint:
		return fingerprint(c)
	}
	return ""
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// describe fills in the descriptor, with the entries that the plan's policy, other counts and
// headers need.
func (x *exchange) describe() {
	x.facts = x.facts[:0]
	for i := range x.plan.facts {
		f := &x.plan.facts[i]
		v := f.find(x)
		if v == "" {
			continue
		}
		if len(v) > policy.MaxValue {
			x.refuse(tooLong(f.name))
			continue
		}
		x.facts = append(x.facts, policy.Entry{Name: f.name, Value: v})
	}
}
