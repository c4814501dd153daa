package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are an authority of the test's own, and what it has signed. Their
// fields are paths of PEM files.
type Certificates struct {
	CA                    string
	ServerCert, ServerKey string // for 127.0.0.1 and localhost, as server and client
	ClientCert, ClientKey string

	client *tls.Config
}

// NewCertificates makes certificates that are good for an hour.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	dir := t.TempDir()
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c := &Certificates{}
	caKey := issue(t, dir, "ca", authority, authority, nil, &c.CA, nil)
	issue(t, dir, "server", &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.ParseIP(loopback)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, caKey, &c.ServerCert, &c.ServerKey)
	issue(t, dir, "client", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "client"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, caKey, &c.ClientCert, &c.ClientKey)

	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	c.client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return c
}

// issue signs a certificate, by its own key if there is no other, and writes it
// and its key to files whose paths it sets. The certificate is parsed into what
// it was made from.
func issue(t testing.TB, dir, name string, cert, authority *x509.Certificate, signer *ecdsa.PrivateKey, certPath, keyPath *string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	if cert.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, authority, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	*cert = *parsed
	*certPath = filepath.Join(dir, name+".crt")
	writePEM(t, *certPath, "CERTIFICATE", der)
	if keyPath != nil {
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		*keyPath = filepath.Join(dir, name+".key")
		writePEM(t, *keyPath, "PRIVATE KEY", secret)
	}
	return key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(fmt.Errorf("servers: %w", err))
	}
}
