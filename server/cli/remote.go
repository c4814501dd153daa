package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/server/app"
)

// maxAnswer bounds the answer of a server, in bytes.
const maxAnswer = 16 << 20

// remote has the flags of every command that asks a server. Its variables differ from those for the
// server's own certificate, which may be in the same environment.
type remote struct {
	Server  string `help:"Server to ask. Default: ${default_server}" placeholder:"URL" env:"HEADGATE_SERVER"`
	TLSCA   string `name:"tls-ca" help:"PEM file with the certificate authorities for the server's certificate. Default: the system's." placeholder:"FILE" env:"HEADGATE_CLIENT_TLS_CA"`
	TLSCert string `name:"tls-cert" help:"PEM file with the client certificate, for a server that requires one." placeholder:"FILE" env:"HEADGATE_CLIENT_TLS_CERT"`
	TLSKey  string `name:"tls-key" help:"PEM file with that certificate's private key." placeholder:"FILE" env:"HEADGATE_CLIENT_TLS_KEY"`
}

// asksStore reports whether a command that asks a server or a store is to ask this store. The command
// line takes precedence over the environment, which may name the memory store for a server.
func (c *call) asksStore(store string) (bool, error) {
	server := ""
	for _, flag := range []string{"server", "tls-ca", "tls-cert", "tls-key", "admin-token-file"} {
		if c.flags[flag] {
			server = flag
		}
	}
	switch {
	case c.flags["store"] && server != "":
		return false, usage("--"+server+" and --store are both given", "ask one of them: a server knows its own store and rules")
	case c.flags["store"] && store == "":
		return false, usage("--store is empty", "name a store, or leave it out and ask a server")
	case c.flags["store"], server == "" && store != "" && store != app.DefaultStore:
		return true, notMemory(store)
	case c.flags["config"]:
		return false, usage("--config is given, but a server has its own rules", "it goes with --store")
	}
	return false, nil
}

// notMemory returns an error for a store that no other process has.
func notMemory(store string) error {
	if store == app.DefaultStore {
		return usage("--store memory is the memory of this process alone", "name a store that processes share, such as redis://127.0.0.1:6379/0, or the server to ask with --server")
	}
	return nil
}

// openStore opens a store. If timeout is zero, calls may take as long as the store usually allows.
func openStore(ctx context.Context, at string, timeout time.Duration) (*app.Store, error) {
	if timeout > 0 {
		timeout = min(max(timeout, time.Millisecond), time.Minute)
	}
	return app.OpenStore(ctx, app.Settings{Store: at, StoreTimeout: timeout})
}

func notURL() *failure {
	return usage("--server is not the URL of a server", "write it as "+defaultServer)
}

// url parses the flag --server. If the command line names files for TLS, the URL must not be one
// without TLS.
func (r *remote) url(c *call) (*url.URL, error) {
	// The error of Parse contains the URL, which may have a password.
	u, err := url.Parse(cmp.Or(r.Server, defaultServer))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, notURL()
	}
	for _, flag := range []string{"tls-ca", "tls-cert", "tls-key"} {
		if c.flags[flag] && u.Scheme != "https" {
			return nil, usage("--"+flag+" is given, and --server is not the URL of a server that speaks TLS", "write --server https://"+u.Host)
		}
	}
	return u, nil
}

// send sends a request to a server, and returns its answer. The request has neither a body in JSON
// nor a token if they are nil or empty.
func (r *remote) send(ctx context.Context, method string, u *url.URL, body any, token string) (status int, text []byte, err error) {
	secure, err := r.tls()
	if err != nil {
		return 0, nil, err
	}
	var content []byte
	if body != nil {
		content, _ = json.Marshal(body) // it has only texts and numbers
	}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(content))
	if err != nil {
		return 0, nil, notURL()
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: secure},
		// The token is only for the server that the user has named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		// A url.Error contains the URL; the cause is inside it.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			return 0, nil, &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s cannot be believed: %v", u.Host, err), hint: disbelief(err)}
		}
		// A server sends an alert if it does not accept the client's certificate, or if there is
		// none.
		var alert *net.OpError
		if errors.As(err, &alert) && alert.Op == "remote error" {
			return 0, nil, &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s refuses the connection: %v", u.Host, alert.Err), hint: certificateHint}
		}
		if errors.Is(err, http.ErrSchemeMismatch) {
			return 0, nil, usage(fmt.Sprintf("the server at %s does not speak TLS", u.Host), "write --server http://"+u.Host+", without the flags for TLS")
		}
		return 0, nil, gone(u, err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, gone(u, err)
	}
	if response.StatusCode == http.StatusBadRequest && bytes.Contains(text, []byte("HTTP request to an HTTPS server")) {
		return 0, nil, usage(fmt.Sprintf("the server at %s speaks TLS", u.Host), "write --server https://"+u.Host)
	}
	return response.StatusCode, text, nil
}

// disbelief returns a hint for an error about a server's certificate.
func disbelief(err error) string {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "the name or address in --server must stand in the server's certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server needs a new certificate, unless the clock of this machine is wrong"
	}
	return "--tls-ca names the file of the authority that has signed its certificate"
}

const certificateHint = "if it asks for certificates, give one that its --tls-client-ca has signed to --tls-cert, and the key to --tls-key"

// tls returns the configuration for connections with TLS.
func (r *remote) tls() (*tls.Config, error) {
	var problems []string
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case r.TLSCert == "" && r.TLSKey != "":
		problems = append(problems, "--tls-key is given without --tls-cert")
	case r.TLSCert != "" && r.TLSKey == "":
		problems = append(problems, "--tls-cert is given without --tls-key")
	case r.TLSCert != "":
		certificate, err := app.LoadKeyPair(r.TLSCert, r.TLSKey)
		if err != nil {
			problems = append(problems, fmt.Sprintf("the certificate %s with the key %s: %v", r.TLSCert, r.TLSKey, err))
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	if r.TLSCA != "" {
		var err error
		if config.RootCAs, err = app.LoadAuthorities(r.TLSCA); err != nil {
			problems = append(problems, fmt.Sprintf("the authorities of the server: %v", err))
		}
	}
	if problems != nil {
		return nil, usage(joinLines(problems), "--tls-ca, --tls-cert and --tls-key name files in PEM form; from the environment they come as HEADGATE_CLIENT_TLS_CA, _CERT and _KEY")
	}
	return config, nil
}

func gone(u *url.URL, err error) error {
	hint := "start one with: headgate serve"
	var network *net.OpError
	if u.Scheme == "https" && errors.As(err, &network) && network.Op != "dial" {
		hint = certificateHint // A server may hang up before it is heard what it does not like.
	}
	return &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s does not answer: %v", u.Host, err), hint: hint}
}

func notHeadgate(u *url.URL, status int) error {
	return &failure{code: CodeUnavailable, text: fmt.Sprintf("what answers at %s with status %d is no Headgate server", u.Host, status), hint: "see what --server points to"}
}

// serverProblem is an error that a server answers with (RFC 9457).
type serverProblem struct {
	Title, Detail string
	Errors        []struct{ Field, Detail string }
}

// lines are what is wrong, safe for a terminal. The errors of parts say more than the general one.
func (p *serverProblem) lines() []string {
	if len(p.Errors) == 0 {
		return []string{plain(p.Detail)}
	}
	lines := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		// The field names come from the command's own request, and the user has asked for one check
		// only.
		lines[i] = plain(strings.TrimPrefix(e.Field, "checks[0].") + ": " + e.Detail)
	}
	return lines
}

// problemOf reads the error that a server has answered with.
func problemOf(u *url.URL, status int, text []byte) (*serverProblem, error) {
	p := new(serverProblem)
	if err := json.Unmarshal(text, p); err != nil || p.Title == "" {
		return nil, notHeadgate(u, status)
	}
	return p, nil
}

// readAnswer parses a server's answer.
func readAnswer(u *url.URL, status int, text []byte) (*answer, error) {
	if status == http.StatusOK {
		// A verdict without decisions cannot be the answer to one check.
		var a answer
		if err := json.Unmarshal(text, &a); err != nil || len(a.Decisions) == 0 && len(a.Reset) == 0 {
			return nil, notHeadgate(u, status)
		}
		return &a, nil
	}
	problem, err := problemOf(u, status, text)
	if err != nil {
		return nil, err
	}
	lines := joinLines(problem.lines())
	switch status {
	case http.StatusNotFound:
		return nil, usage(lines, "the server's rules are at "+u.JoinPath("v1", "rules").Redacted())
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return nil, usage(lines, "")
	}
	return nil, &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s cannot decide: %s", u.Host, lines), hint: "its log and /readyz say more"}
}
