package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// certificates are the server's certificate, and the authorities that it accepts for its clients,
// at all doors alike. The files are read again when they change.
type certificates struct {
	certFile, keyFile, caFile string
	client                    string // what the certificate of a client must be for, or ""
	logger                    *slog.Logger

	active atomic.Pointer[tls.Config]
	reloads
}

// newCertificates reads the files that the settings name. It returns nil if they
// name none.
func newCertificates(s *Settings) (*certificates, error) {
	if s.TLSCert == "" {
		return nil, nil
	}
	c := &certificates{certFile: s.TLSCert, keyFile: s.TLSKey, caFile: s.TLSClientCA, client: s.TLSClientName, logger: s.Logger}
	if err := c.read(); err != nil {
		return nil, &SettingsError{[]string{err.Error()}}
	}
	return c, nil
}

func (c *certificates) files() []string {
	files := []string{c.certFile, c.keyFile}
	if c.caFile != "" {
		files = append(files, c.caFile)
	}
	return files
}

// read reads the files until certificate and key belong together, because they are seldom replaced in
// one step.
func (c *certificates) read() error {
	return c.origin.read(c.files, func() ([]string, error) { return c.files(), c.load() })
}

// LoadKeyPair is [tls.LoadX509KeyPair], with an error that recognizes a key which is protected by a
// password.
func LoadKeyPair(certFile, keyFile string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		// Both forms of such keys say so in their first lines.
		if text, reading := os.ReadFile(keyFile); reading == nil && bytes.Contains(text, []byte("ENCRYPTED")) {
			err = fmt.Errorf("%w; it is protected by a password: have openssl pkey write it without", err)
		}
	}
	return pair, err
}

// LoadAuthorities reads the certificates of authorities.
func LoadAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	return pool, nil
}

// load reads the files, and puts what they hold in force.
func (c *certificates) load() error {
	certificate, err := LoadKeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("tls: the certificate %s with the key %s: %w", c.certFile, c.keyFile, err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if c.caFile != "" {
		if config.ClientCAs, err = LoadAuthorities(c.caFile); err != nil {
			return fmt.Errorf("tls: the authorities of clients: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if c.client != "" {
		config.VerifyConnection = c.verify
	}
	c.active.Store(config)
	return nil
}

// verify returns an error if the certificate of a client is for another name than it must be.
func (c *certificates) verify(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0] // There is one: it was verified.
	if slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == c.client }) {
		return nil
	}
	return leaf.VerifyHostname(c.client)
}

// config is the configuration for a server. Each connection uses the certificates that are in force
// when it is made.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.active.Load(), nil },
	}
}

// notAfter is when the certificate expires, in seconds since 1970.
func (c *certificates) notAfter() float64 {
	return float64(c.active.Load().Certificates[0].Leaf.NotAfter.Unix())
}

// watch reads the files again when they change, until ctx ends.
func (c *certificates) watch(ctx context.Context, every time.Duration) {
	c.reloads.watch(ctx, every, c.files, func(string) {
		if err := c.read(); err != nil {
			c.logger.ErrorContext(ctx, "the certificate was not read again; the one in force stays", slog.Any("error", err))
			return
		}
		c.logger.InfoContext(ctx, "the certificate was read again", slog.Time("ends", c.active.Load().Certificates[0].Leaf.NotAfter))
	})
}

// tlsServer is an HTTP server that speaks TLS.
type tlsServer struct{ *http.Server }

// Serve implements [server].
func (s tlsServer) Serve(l net.Listener) error { return s.ServeTLS(l, "", "") }

// checkTLS returns what is wrong with the TLS settings, or "".
func checkTLS(s *Settings) string {
	switch {
	case s.TLSCert == "" && s.TLSKey != "":
		return "there is a key and no certificate; give both"
	case s.TLSCert != "" && s.TLSKey == "":
		return "there is a certificate and no key; give both"
	case s.TLSClientCA != "" && s.TLSCert == "":
		return "there are authorities of clients, but no certificate of the server; give it and its key"
	case s.TLSClientName != "" && s.TLSClientCA == "":
		return "there is a name of clients, but no authorities of clients; give them as well"
	}
	return ""
}
