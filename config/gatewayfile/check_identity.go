package gatewayfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
)

func (c *checker) identity(id *Identity) {
	if id.Resolver == nil {
		c.resolver(id)
	}
	if id.JWT != nil {
		j := *id.JWT
		id.JWT = &j
		c.jwt(&j)
	}
	if id.APIKey == nil {
		id.APIKey = []string{authorization, "X-Api-Key"}
		if id.JWT != nil {
			if header, _, _ := strings.Cut(id.JWT.Header, ":"); strings.EqualFold(header, authorization) {
				id.APIKey = []string{"X-Api-Key"}
			}
		}
	}
	for i, name := range id.APIKey {
		if problem := new(identity.Keys).Add(name, http.CanonicalHeaderKey); problem != "" {
			c.bad(fmt.Sprintf("identity.api_key[%d]", i), "identity: %s", problem)
		}
	}
	taken := map[string]string{"ip": "", "route": "", "method": "", "host": "", "path": "", "api_key": ""}
	entry := func(field, name, from string) {
		field = "identity." + field + "." + name
		if !isEntryName(name) {
			c.bad(field, "identity: %q is not the name of an entry: 1 to 64 letters, digits and _ - . :", name)
		} else if first, twice := taken[name]; twice && first == "" {
			c.bad(field, "identity: the entry %q is found by the gateway itself; take another name", name)
		} else if twice {
			c.bad(field, "identity: the entry %q is taken from %s and from %s; keep one", name, first, from)
		}
		taken[name] = from
	}
	for _, source := range []struct {
		field, from string
		headers     *map[string]string
	}{{"headers", "a header", &id.Headers}, {"trusted_headers", "a trusted header", &id.Trusted}} {
		*source.headers = maps.Clone(*source.headers)
		for _, name := range slices.Sorted(maps.Keys(*source.headers)) {
			header := (*source.headers)[name]
			entry(source.field, name, source.from)
			if !isHeaderName(header) {
				c.bad("identity."+source.field+"."+name, "identity: the entry %q is taken from %q, which is not the name of a header", name, header)
			}
			(*source.headers)[name] = http.CanonicalHeaderKey(header)
		}
	}
	if len(id.Trusted) > 0 && id.Resolver.Source() == "" && len(id.Address.Trust) == 0 {
		c.bad("identity", "identity: there are entries from trusted headers, but no proxy is trusted; say which ones under address")
	}
	for _, name := range slices.Sorted(maps.Keys(id.Certificate)) {
		entry("certificate", name, "the certificate")
		if id.Certificate[name] > Fingerprint {
			c.bad("identity.certificate."+name, "identity: field %d of a certificate is unknown", id.Certificate[name])
		}
	}
	if id.JWT != nil {
		for _, name := range slices.Sorted(maps.Keys(id.JWT.Claims)) {
			entry("jwt.claims", name, "the token")
			if id.JWT.Claims[name] == "" {
				c.bad("identity.jwt.claims."+name, "identity: the entry %q is taken from a claim without a name", name)
			}
		}
	}
}

// resolver makes the resolver of addresses.
func (c *checker) resolver(id *Identity) {
	if id.Resolver = new(httplimit.Resolver); len(id.Address.Trust) == 0 {
		return
	}
	source := httplimit.Source(cmp.Or(id.Address.Header, string(httplimit.XForwardedFor)))
	made, err := httplimit.NewResolver(source, id.Address.Trust...)
	var invalid *headgate.InvalidError
	switch {
	case errors.As(err, &invalid):
		for _, p := range invalid.Problems {
			c.bad("identity.address", "identity: %s", p.Text)
		}
	case err == nil:
		id.Resolver = made
	}
}

func (c *checker) jwt(j *JWT) {
	if j.Keys == "" {
		c.bad("identity.jwt.keys", "identity: tokens need keys to be verified with: a URL or a file")
	}
	if j.Algorithms == nil {
		j.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	if len(j.Algorithms) == 0 {
		c.bad("identity.jwt.algorithms", "identity: no algorithm of tokens is accepted")
	}
	for i, name := range j.Algorithms {
		if !slices.Contains(Algorithms(), name) {
			c.bad(fmt.Sprintf("identity.jwt.algorithms[%d]", i), "identity: the algorithm %q of tokens is not one of %s", name, strings.Join(Algorithms(), ", "))
		}
	}
	j.Header = cmp.Or(j.Header, authorization)
	if problem := new(identity.Keys).Add(j.Header, http.CanonicalHeaderKey); problem != "" {
		c.bad("identity.jwt.header", "identity: tokens come in %s", problem)
	}
	j.Leeway = cmp.Or(j.Leeway, DefaultLeeway)
	if j.Leeway < 0 || j.Leeway > MaxLeeway {
		c.bad("identity.jwt.leeway", "identity: the clocks of tokens may differ by %v, must be at most %v", j.Leeway, MaxLeeway)
	}
	j.Refresh = cmp.Or(j.Refresh, DefaultRefresh)
	if j.Refresh < time.Second || j.Refresh > Longest {
		c.bad("identity.jwt.refresh", "identity: keys are fetched every %v, must be 1s to %v", j.Refresh, Longest)
	}
	j.Claims = maps.Clone(j.Claims)
}

// Algorithms are those that tokens may be signed by: the asymmetric ones, so that
// who verifies a token cannot make one.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}
