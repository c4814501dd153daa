package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/gateway"
	"github.com/headgate/headgate/telemetry/prom"
)

// GatewaySettings make the service a gateway, which passes on the requests that its rules admit.
type GatewaySettings struct {
	Upstreams   []string `name:"upstream" help:"Upstream server, if the gateway file names none: http://host:port, https://host:port, or h2c://host:port for HTTP/2 without TLS. May be repeated; requests are spread over all." placeholder:"URL" sep:"none" env:"HEADGATE_UPSTREAM"`
	File        string   `name:"gateway" help:"Gateway file: upstreams, routes, identity, concurrency limits." placeholder:"FILE" env:"HEADGATE_GATEWAY"`
	Listen      string   `help:"Address to listen on for requests; port 0 picks a free port. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8000" env:"HEADGATE_LISTEN"`
	Trust       []string `help:"Proxy that is trusted to report the client's address, if the gateway file names none: a prefix, an address, or unix. May be repeated." placeholder:"PREFIX" env:"HEADGATE_TRUST"`
	TrustHeader string   `name:"trust-header" help:"Header with the client's address that trusted proxies set: Forwarded, or one with a single address. Default: X-Forwarded-For." placeholder:"NAME" env:"HEADGATE_TRUST_HEADER"`
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
	options.Keeper = a.keeper
	g, err := gateway.New(ctx, decider, options)
	if err != nil {
		return gatewayError(err)
	}
	if err := g.Check(a.Policy().Set); err != nil {
		g.Close()
		return checkError(err)
	}
	a.source.check, a.gated = g.Check, g
	registry.MustRegister(g, prom.InProgress(a.keeper))
	if s.File != "" {
		source.gateway, a.gateway = g, source
		registry.MustRegister(scraped(source.collect))
	}
	var config *tls.Config
	if a.certificates != nil {
		config = a.certificates.config()
	}
	a.add("gateway", s.Listen, g.Server(a.leaving(a.traces.http("gateway", g)), config))
	return nil
}

// gatewayError returns the error of a gateway that cannot be made.
func gatewayError(err error) error {
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return &SettingsError{prefixed("gateway: ", invalid.Problems.Texts())}
	}
	return &unavailable{"the gateway cannot work", err}
}

// checkError returns the error of a policy that the gateway cannot enforce.
func checkError(err error) error {
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return &SettingsError{prefixed("the policy and the gateway: ", invalid.Problems.Texts())}
	}
	return err
}

// mistakes returns the mistakes in the settings that do not depend on the file.
func (s *GatewaySettings) mistakes() (problems []string) {
	if p := checkListen(s.Listen); p != "" {
		problems = append(problems, "gateway listen: "+p)
	}
	alone := *s
	if s.File != "" {
		// The file may supply what is missing here.
		alone.File = ""
		if len(s.Upstreams) == 0 {
			alone.Upstreams = []string{"http://of.the.file"}
		}
		if len(s.Trust) == 0 {
			alone.TrustHeader = ""
		}
	}
	options, _, err := gatewayOptions(&alone)
	if wrong, ok := errors.AsType[*SettingsError](err); ok {
		problems = append(problems, wrong.Problems...)
	}
	if len(alone.Upstreams) > 0 { // That there is none has been said.
		problems = append(problems, prefixed("gateway: ", options.Mistakes().Texts())...)
	}
	return problems
}

// gatewayOptions returns options made from the settings and their file, if there are no mistakes,
// and the names of the files that had to be read.
func gatewayOptions(s *GatewaySettings) (gateway.Options, []string, error) {
	files := gatewayFiles(s)
	file := new(gatewayfile.Settings)
	if s.File != "" {
		var err error
		file, err = config.ReadGateway(s.File)
		var wrong *config.Error
		switch {
		case errors.As(err, &wrong):
			return gateway.Options{}, files, &GatewayFileError{wrong}
		case err != nil:
			return gateway.Options{}, files, &SettingsError{[]string{"gateway file: " + errtext.Text(err)}}
		}
	}
	var problems []string
	switch {
	case len(file.Upstreams) > 0 && len(s.Upstreams) > 0:
		problems = append(problems, "gateway: the gateway file has upstreams, and so has the command; leave one of them out")
	case len(file.Upstreams) == 0 && len(s.Upstreams) == 0:
		problems = append(problems, "gateway: there is no upstream; give one, such as --upstream http://127.0.0.1:9000")
	case len(file.Upstreams) == 0:
		file.Upstreams = []gatewayfile.Upstream{{Name: "default", Targets: s.Upstreams}}
	}
	address := &file.Identity.Address
	switch {
	case len(address.Trust) > 0 && len(s.Trust) > 0:
		problems = append(problems, "gateway: the gateway file says which proxies are trusted, and so does the command; leave one of them out")
	case len(s.Trust) > 0:
		address.Trust, address.Header = s.Trust, s.TrustHeader
	case len(address.Trust) == 0 && s.TrustHeader != "":
		problems = append(problems, "gateway: there is a header that proxies write, but none of them is trusted")
	}
	b := &gatewayBuilder{dir: filepath.Dir(s.File), problems: problems, files: files}
	for i := range file.Upstreams {
		b.upstream(&file.Upstreams[i])
	}
	if j := file.Identity.JWT; j != nil && !strings.HasPrefix(j.Keys, "http://") && !strings.HasPrefix(j.Keys, "https://") {
		j.Keys = b.path(j.Keys)
	}
	options := gateway.Options{Settings: *file}
	if b.problems != nil {
		return options, b.files, &SettingsError{b.problems}
	}
	return options, b.files, nil
}

// gatewayBuilder makes the parts of the gateway that its file names.
type gatewayBuilder struct {
	dir      string // of the file: names of files in it are relative to it
	files    []string
	problems []string
}

func (b *gatewayBuilder) bad(format string, args ...any) {
	b.problems = append(b.problems, "gateway: "+fmt.Sprintf(format, args...))
}

// path returns the path of a file that the gateway file names.
func (b *gatewayBuilder) path(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(b.dir, name)
	}
	return name
}

// upstream reads the key of the upstream, and makes its TLS.
func (b *gatewayBuilder) upstream(u *gatewayfile.Upstream) {
	if u.LLM != nil && u.LLM.KeyFile != "" {
		path := b.path(u.LLM.KeyFile)
		b.files = append(b.files, path)
		text, err := os.ReadFile(path)
		if u.LLM.Key = strings.TrimSpace(string(text)); err != nil {
			b.bad("upstream %q: the provider's key cannot be read: %v", u.Name, err)
		} else if u.LLM.Key == "" {
			b.bad("upstream %q: %s has no key", u.Name, u.LLM.KeyFile)
		}
	}
	f := &u.Files
	if f.CA == "" && f.Cert == "" && f.ServerName == "" {
		return
	}
	u.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		path := b.path(f.CA)
		b.files = append(b.files, path)
		var err error
		if u.TLS.RootCAs, err = LoadAuthorities(path); err != nil {
			b.bad("upstream %q: the authorities cannot be read: %v", u.Name, err)
		}
	}
	if f.Cert != "" {
		cert, key := b.path(f.Cert), b.path(f.Key)
		b.files = append(b.files, cert, key)
		pair, err := LoadKeyPair(cert, key)
		if err != nil {
			b.bad("upstream %q: the certificate %s with the key %s: %v", u.Name, f.Cert, f.Key, err)
		}
		u.TLS.Certificates = []tls.Certificate{pair}
	}
}
