package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/gateway"
)

// GatewaySettings have the service pass on what its rules admit.
type GatewaySettings struct {
	// Listen is the address to serve on, host:port. Required.
	Listen string
	// Upstreams are the targets of the only upstream, such as
	// http://127.0.0.1:9000, if the file has none.
	Upstreams []string
	// Trust are the proxies that are believed about the client's address, and
	// TrustHeader the header that they hand it on in, X-Forwarded-For if empty,
	// unless the file says it.
	Trust       []string
	TrustHeader string
	// File is the gateway file. Empty means none.
	File string
}

// GatewayFileError is the error of a gateway file with mistakes.
type GatewayFileError struct{ Err *config.Error }

// Error writes one mistake per line.
func (e *GatewayFileError) Error() string { return e.Err.Error() }

// Unwrap returns the error with the mistakes.
func (e *GatewayFileError) Unwrap() error { return e.Err }

// openGateway makes the gateway and binds its address.
func (a *App) openGateway(ctx context.Context, decider decide.Decider, registry *prometheus.Registry) error {
	s := a.settings.Gateway
	source := newGatewaySource(&a.settings, a.source, a.decisive())
	options, err := source.begin()
	if err != nil {
		return err
	}
	g, err := gateway.New(ctx, decider, options)
	if err != nil {
		return gatewayError(err)
	}
	if err := g.Check(a.Policy().Set); err != nil {
		g.Close()
		return checkError(err)
	}
	a.source.check = g.Check
	registry.MustRegister(g)
	if s.File != "" {
		source.gateway, a.gateway = g, source
		registry.MustRegister(source)
	}
	var config *tls.Config
	if a.certificates != nil {
		config = a.certificates.config()
	}
	a.add("gateway", s.Listen, g.Server(a.leaving(g), config))
	return nil
}

// gatewayError is why there is no such gateway.
func gatewayError(err error) error {
	var invalid *headgate.InvalidError
	if errors.As(err, &invalid) {
		return &SettingsError{prefixed("gateway: ", invalid.Problems.Texts())}
	}
	return &unavailable{"the gateway cannot work", err}
}

// checkError is what is wrong with a policy for the gateway.
func checkError(err error) error {
	var invalid *headgate.InvalidError
	if errors.As(err, &invalid) {
		return &SettingsError{prefixed("the policy and the gateway: ", invalid.Problems.Texts())}
	}
	return err
}

// mistakes are what is wrong with the settings whatever their file says.
func (s *GatewaySettings) mistakes() (problems []string) {
	if p := checkListen(s.Listen); p != "" {
		problems = append(problems, "gateway listen: "+p)
	}
	alone := *s
	if s.File != "" {
		// It may have what they lack.
		alone.File = ""
		if len(s.Upstreams) == 0 {
			alone.Upstreams = []string{"http://of.the.file"}
		}
		if len(s.Trust) == 0 {
			alone.TrustHeader = ""
		}
	}
	options, _, err := gatewayOptions(&alone)
	var wrong *SettingsError
	if errors.As(err, &wrong) {
		problems = append(problems, wrong.Problems...)
	}
	if len(alone.Upstreams) > 0 { // That there is none has been said.
		problems = append(problems, prefixed("gateway: ", options.Mistakes())...)
	}
	return problems
}

// gatewayOptions are the settings and their file as options, as far as there are no
// mistakes in them, and the names of the files that were to be read.
func gatewayOptions(s *GatewaySettings) (gateway.Options, []string, error) {
	files := gatewayFiles(s)
	file := new(config.Gateway)
	if s.File != "" {
		var err error
		file, err = config.ReadGateway(s.File)
		var wrong *config.Error
		switch {
		case errors.As(err, &wrong):
			return gateway.Options{}, files, &GatewayFileError{wrong}
		case err != nil:
			return gateway.Options{}, files, &SettingsError{[]string{"gateway file: " + headgate.Text(err)}}
		}
	}
	var problems []string
	switch {
	case len(file.Upstreams) > 0 && len(s.Upstreams) > 0:
		problems = append(problems, "gateway: the gateway file has upstreams, and so has the command; leave one of them out")
	case len(file.Upstreams) == 0 && len(s.Upstreams) == 0:
		problems = append(problems, "gateway: there is no upstream; give one, such as --upstream http://127.0.0.1:9000")
	case len(file.Upstreams) == 0:
		file.Upstreams = []config.GatewayUpstream{{Name: "default", Targets: s.Upstreams}}
	}
	id := &file.Identity
	switch {
	case len(id.Trust) > 0 && len(s.Trust) > 0:
		problems = append(problems, "gateway: the gateway file says which proxies are trusted, and so does the command; leave one of them out")
	case len(s.Trust) > 0:
		id.Trust, id.AddressHeader = s.Trust, s.TrustHeader
	case len(id.Trust) == 0 && s.TrustHeader != "":
		problems = append(problems, "gateway: there is a header that proxies write, but none of them is trusted")
	}
	b := &gatewayBuilder{dir: filepath.Dir(s.File)}
	options := b.options(file)
	problems = append(problems, b.problems...)
	for i := range file.Upstreams {
		u := &file.Upstreams[i]
		for _, name := range []string{u.CA, u.Cert, u.Key} {
			if name != "" {
				files = append(files, b.path(name))
			}
		}
	}
	if problems != nil {
		return options, files, &SettingsError{problems}
	}
	return options, files, nil
}

// gatewayBuilder makes options of a gateway file.
type gatewayBuilder struct {
	dir      string // of the file: names of files in it are seen from there
	problems []string
}

func (b *gatewayBuilder) bad(format string, args ...any) {
	b.problems = append(b.problems, "gateway: "+fmt.Sprintf(format, args...))
}

// path is the name of a file in the gateway file, seen from here.
func (b *gatewayBuilder) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(b.dir, name)
}

func (b *gatewayBuilder) options(file *config.Gateway) gateway.Options {
	forms, problem := spelling.ParseForms(file.Paths)
	if problem != "" {
		b.bad("paths: %s", problem)
	}
	o := gateway.Options{
		Paths:    httplimit.PathForm(forms),
		Identity: b.identity(&file.Identity),
		Request:  headers(&file.Request), Response: headers(&file.Response),
		MaxBody: file.MaxBody, MaxHeader: int(file.MaxHeader), MaxDelay: file.MaxDelay, Upgrades: file.Upgrades,
		Clients:     gateway.Clients(file.Clients),
		Connections: gateway.Connections{Total: int(file.Connections.Total), PerAddress: int(file.Connections.PerAddress)},
	}
	for i := range file.Upstreams {
		o.Upstreams = append(o.Upstreams, b.upstream(&file.Upstreams[i]))
	}
	for i := range file.Routes {
		r := &file.Routes[i]
		o.Routes = append(o.Routes, gateway.Route{
			Pattern: r.Pattern, Name: r.Name, Upstream: r.Upstream, MaxBody: r.MaxBody,
			Request: headers(&r.Request), Response: headers(&r.Response),
		})
	}
	for _, c := range file.Concurrency {
		o.Concurrency = append(o.Concurrency, gateway.Concurrency{Name: c.Name, Match: c.Match, Per: c.Per, Limit: int(c.Limit)})
	}
	for _, one := range file.Settle {
		o.Settle = append(o.Settle, gateway.Settle(one))
	}
	return o
}

func (b *gatewayBuilder) upstream(u *config.GatewayUpstream) gateway.Upstream {
	made := gateway.Upstream{
		Name: u.Name, Targets: u.Targets, TargetHost: u.TargetHost,
		Eject:    gateway.Eject{After: int(u.EjectAfter), For: u.EjectFor},
		Timeouts: gateway.Timeouts{Dial: u.DialTimeout, ResponseHeader: u.ResponseHeaderTimeout, Idle: u.IdleTimeout, KeepAlive: u.KeepAlive},
		TLS:      b.tls(u),
	}
	if u.LeastConnections {
		made.Balance = gateway.LeastConnections
	}
	if u.HealthPath != "" {
		made.Health = &gateway.Health{Path: u.HealthPath, Every: u.HealthEvery, Timeout: u.HealthTimeout, UpAfter: int(u.UpAfter), DownAfter: int(u.DownAfter)}
	}
	return made
}

func (b *gatewayBuilder) tls(u *config.GatewayUpstream) *tls.Config {
	if u.CA == "" && u.Cert == "" && u.ServerName == "" {
		return nil
	}
	made := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.ServerName}
	if u.CA != "" {
		made.RootCAs = x509.NewCertPool()
		if text, err := os.ReadFile(b.path(u.CA)); err != nil {
			b.bad("upstream %q: the authorities cannot be read: %v", u.Name, err)
		} else if !made.RootCAs.AppendCertsFromPEM(text) {
			b.bad("upstream %q: %s has no certificate in PEM form", u.Name, u.CA)
		}
	}
	if u.Cert != "" {
		pair, err := LoadKeyPair(b.path(u.Cert), b.path(u.Key))
		if err != nil {
			b.bad("upstream %q: the certificate %s with the key %s: %v", u.Name, u.Cert, u.Key, err)
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made
}

// certificateFields are the parts of a certificate by their names in a file.
var certificateFields = map[string]gateway.CertificateField{
	config.CertCommonName: gateway.CommonName, config.CertDNSName: gateway.DNSName, config.CertURI: gateway.URI,
	config.CertEmail: gateway.Email, config.CertFingerprint: gateway.Fingerprint,
}

func (b *gatewayBuilder) identity(id *config.GatewayIdentity) gateway.Identity {
	made := gateway.Identity{APIKey: id.APIKey, Headers: id.Headers, Trusted: id.TrustedHeaders}
	if len(id.Trust) > 0 {
		source := httplimit.XForwardedFor
		if id.AddressHeader != "" {
			source = httplimit.Source(id.AddressHeader)
		}
		resolver, err := httplimit.NewResolver(source, id.Trust...)
		var invalid *headgate.InvalidError
		if errors.As(err, &invalid) {
			b.problems = append(b.problems, prefixed("gateway: ", invalid.Problems.Texts())...)
		}
		made.Resolver = resolver
	}
	for entry, part := range id.Certificate {
		if made.Certificate == nil {
			made.Certificate = make(map[string]gateway.CertificateField)
		}
		made.Certificate[entry] = certificateFields[part]
	}
	if j := id.JWT; j != nil {
		made.JWT = &gateway.JWT{
			Keys: j.Keys, Algorithms: j.Algorithms, Issuer: j.Issuer, Audience: j.Audience, Leeway: j.Leeway,
			Header: j.Header, Claims: j.Claims, Required: j.Required, Refresh: j.Refresh,
		}
		if !strings.HasPrefix(j.Keys, "http://") && !strings.HasPrefix(j.Keys, "https://") {
			made.JWT.Keys = b.path(j.Keys)
		}
	}
	return made
}

func headers(h *config.GatewayHeaders) gateway.Headers {
	made := gateway.Headers{Remove: h.Remove}
	for _, s := range h.Set {
		made.Set = append(made.Set, gateway.Header(s))
	}
	return made
}
