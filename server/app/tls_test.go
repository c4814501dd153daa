package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// authority signs certificates in a directory.
type authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.certificate, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, "ca")
	return a
}

// sign writes name.pem and name.key.
func (a *authority) sign(t *testing.T, c *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.serial++
	c.SerialNumber = big.NewInt(a.serial)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, parentKey := a.certificate, a.key
	if parent == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(a.dir, name+".pem"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(a.dir, name+".key"), "PRIVATE KEY", pkcs8)
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed, key
}

func (a *authority) server(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	signed, _ := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, "server")
	return signed
}

func (a *authority) client(t *testing.T) tls.Certificate {
	t.Helper()
	a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, "client")
	pair, err := tls.LoadX509KeyPair(a.file("client.pem"), a.file("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// trusting is what a client of the authority's servers needs.
func (a *authority) trusting(own ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12}
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// get asks the HTTP door, over a connection of its own, and returns what it
// said and with which certificate.
func (r *running) get(t *testing.T, config *tls.Config, path string) (body string, leaf *x509.Certificate, err error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.Addr("http").String()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", nil, err
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		t.Errorf("the protocol is %s", response.Proto)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), response.TLS.PeerCertificates[0], err
}

func TestTLSServesEveryDoor(t *testing.T) {
	a := newAuthority(t, "ours")
	a.server(t, "server")
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", TLSCert: a.file("server.pem"), TLSKey: a.file("server.key")})
	if body, _, err := r.get(t, a.trusting(), "/readyz"); err != nil || !strings.Contains(body, "ready") {
		t.Errorf("HTTP: %q, %v", body, err)
	}
	if body, _, err := r.get(t, a.trusting(), "/metrics"); err != nil || !strings.Contains(body, "headgate_tls_certificate_expiry_timestamp_seconds ") {
		t.Errorf("the metrics say nothing of the certificate: %v", err)
	}
	conn := r.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(a.trusting())))
	if got, err := health(t, conn, ""); err != nil || got != serving {
		t.Errorf("gRPC: %v, %v", got, err)
	}
}

func TestMutualTLSTurnsStrangersAway(t *testing.T) {
	a, b := newAuthority(t, "ours"), newAuthority(t, "theirs")
	a.server(t, "server")
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", TLSCert: a.file("server.pem"), TLSKey: a.file("server.key"), TLSClientCA: a.file("ca.pem")})
	for name, tt := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"one of ours":     {a.trusting(a.client(t)), true},
		"one of theirs":   {a.trusting(b.client(t)), false},
		"no certificate":  {a.trusting(), false},
		"a server's":      {a.trusting(mustPair(t, a.file("server.pem"), a.file("server.key"))), false},
		"trusts no other": {b.trusting(a.client(t)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := r.get(t, tt.config, "/readyz"); (err == nil) != tt.ok {
				t.Errorf("HTTP: %v", err)
			}
			got, err := health(t, r.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(tt.config))), "")
			if tt.ok && (err != nil || got != serving) || !tt.ok && status.Code(err) != codes.Unavailable {
				t.Errorf("gRPC: %v, %v", got, err)
			}
		})
	}
}

// TestClientsByName: the certificate of a client must be for the name, if there is one.
func TestClientsByName(t *testing.T) {
	a := newAuthority(t, "ours")
	a.server(t, "server")
	workload := &url.URL{Scheme: "spiffe", Host: "mesh", Path: "/envoy"}
	a.sign(t, &x509.Certificate{
		DNSNames: []string{"envoy.local"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}, URIs: []*url.URL{workload},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, "envoy")
	envoy := mustPair(t, a.file("envoy.pem"), a.file("envoy.key"))
	for name, own := range map[string]bool{"envoy.local": true, "192.0.2.1": true, "spiffe://mesh/envoy": true, "other.local": false, "spiffe://mesh/other": false} {
		r := start(t, Settings{GRPCListen: "127.0.0.1:0", TLSCert: a.file("server.pem"), TLSKey: a.file("server.key"), TLSClientCA: a.file("ca.pem"), TLSClientName: name})
		if _, _, err := r.get(t, a.trusting(envoy), "/readyz"); (err == nil) != own {
			t.Errorf("HTTP, for %s: %v", name, err)
		}
		got, err := health(t, r.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(a.trusting(envoy)))), "")
		if own && (err != nil || got != serving) || !own && status.Code(err) != codes.Unavailable {
			t.Errorf("gRPC, for %s: %v, %v", name, got, err)
		}
		if _, _, err := r.get(t, a.trusting(a.client(t)), "/readyz"); err == nil {
			t.Errorf("a certificate without names is taken for %s", name)
		}
	}
}

func mustPair(t *testing.T, certFile, keyFile string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestCertificateIsReadAgain(t *testing.T) {
	a := newAuthority(t, "ours")
	a.server(t, "first")
	settings := Settings{TLSCert: a.file("server.pem"), TLSKey: a.file("server.key")}
	settings.lookEvery = 5 * time.Millisecond
	r := start(t, settings)
	name := func() string {
		_, leaf, err := r.get(t, a.trusting(), "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	if got := name(); got != "first" {
		t.Fatalf("the certificate is %q", got)
	}
	// One that does not fit its key changes nothing.
	if err := os.WriteFile(a.file("server.pem"), []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the certificate was not read again")
	if got := name(); got != "first" {
		t.Errorf("after a file that is none the certificate is %q", got)
	}
	a.server(t, "second")
	r.await(t, `"the certificate was read again"`)
	if got := name(); got != "second" {
		t.Errorf("the certificate is %q", got)
	}
}

// await waits for a line of the log.
func (r *running) await(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for !strings.Contains(r.log.String(), text) {
		select {
		case <-ctx.Done():
			t.Fatalf("the log never said %q: %s", text, r.log)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestTLSSettingsAreChecked(t *testing.T) {
	a := newAuthority(t, "ours")
	a.server(t, "server")
	other := newAuthority(t, "theirs")
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	protected := filepath.Join(t.TempDir(), "protected.key")
	if err := os.WriteFile(protected, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := a.file("server.pem"), a.file("server.key")
	for want, settings := range map[string]Settings{
		"there is a key and no certificate":        {TLSKey: key},
		"there is a certificate and no key":        {TLSCert: cert},
		"no certificate of the server":             {TLSClientCA: a.file("ca.pem")},
		"there is a name of clients":               {TLSCert: cert, TLSKey: key, TLSClientName: "envoy"},
		"private key does not match":               {TLSCert: cert, TLSKey: other.file("ca.key")},
		"it is protected by a password":            {TLSCert: cert, TLSKey: protected},
		"no such file":                             {TLSCert: cert, TLSKey: filepath.Join(a.dir, "gone.key")},
		"none.pem has no certificate in PEM form":  {TLSCert: cert, TLSKey: key, TLSClientCA: none},
		"the authorities of clients: open " + "/x": {TLSCert: cert, TLSKey: key, TLSClientCA: "/x"},
	} {
		_, err := New(t.Context(), settings)
		var wrong *SettingsError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}
