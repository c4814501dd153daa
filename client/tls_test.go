package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate"
)

// TestTLS: the server must be who it says, and a token goes to nobody else.
func TestTLS(t *testing.T) {
	// A certificate for the loopback, ready made.
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	authorities := x509.NewCertPool()
	authorities.AddCert(web.Certificate())
	f := newFake(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS13})))
	dialTLS := func(options ...Option) *Client {
		c, err := New(f.target, append(options, Timeout(MaxTimeout))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	trusting := &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS13}
	c := dialTLS(TLS(trusting), Token("a-token-of-the-store"))
	trusting.RootCAs = nil // The client has a copy.
	connected(t, c)
	if err := c.Store().Ping(t.Context()); err != nil {
		t.Errorf("a server that is trusted: %v", err)
	}
	distrusting := dialTLS(TLS(nil))
	eventually(t, "the certificate is why", func() bool {
		err := distrusting.Store().Ping(t.Context())
		if !errors.Is(err, headgate.ErrUnavailable) {
			t.Fatalf("a server that is not: %v", err)
		}
		return strings.Contains(err.Error(), "certificate")
	})
	if err := dialTLS(Plaintext()).Store().Ping(t.Context()); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("in the clear: %v", err)
	}
}
