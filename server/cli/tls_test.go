package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signer signs certificates, and writes each as NAME.pem and NAME.key.
type signer struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	a := &signer{dir: t.TempDir()}
	a.certificate, a.key = a.sign(t, "ca", x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.sign(t, "server", x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.sign(t, "client", x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	a.sign(t, "expired", x509.Certificate{NotAfter: time.Now().Add(-time.Minute), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return a
}

func (a *signer) file(name string) string { return filepath.Join(a.dir, name) }

func (a *signer) sign(t *testing.T, name string, c x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.Subject, c.SerialNumber = pkix.Name{CommonName: name}, big.NewInt(time.Now().UnixNano())
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, parentKey := a.certificate, a.key
	if parent == nil {
		parent, parentKey = &c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		file, kind string
		der        []byte
	}{{name + ".pem", "CERTIFICATE", der}, {name + ".key", "PRIVATE KEY", pkcs8}} {
		if err := os.WriteFile(a.file(one.file), pem.EncodeToMemory(&pem.Block{Type: one.kind, Bytes: one.der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return signed, key
}

// TestClientCertificates asks a server that answers nobody without a certificate.
func TestClientCertificates(t *testing.T) {
	plainEnvironment(t)
	a, stranger := newSigner(t), newSigner(t)
	file := a.file("headgate.yaml")
	if err := os.WriteFile(file, []byte("rules:\n  - {name: login, per: [user], limits: [9 per 1000h]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := &watched{lines: make(chan string, 1000)}
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, []string{
			"serve", "--config", file, "--candidate", file, "--listen", "127.0.0.1:0", "--log-format", "json",
			"--tls-cert", a.file("server.pem"), "--tls-key", a.file("server.key"), "--tls-client-ca", a.file("ca.pem"),
		}, log, log, "")
	}()
	server := log.address(t)

	believe := []string{"--tls-ca", a.file("ca.pem")}
	show := func(s *signer, name string) []string {
		return []string{"--tls-cert", s.file(name + ".pem"), "--tls-key", s.file(name + ".key")}
	}
	all := func(lists ...[]string) (args []string) {
		for _, list := range lists {
			args = append(args, list...)
		}
		return args
	}
	protected := a.file("protected.key")
	if err := os.WriteFile(protected, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("what nobody can read")}), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"HEADGATE_CLIENT_TLS_CA": a.file("ca.pem"), "HEADGATE_CLIENT_TLS_CERT": a.file("client.pem"), "HEADGATE_CLIENT_TLS_KEY": a.file("client.key")}
	for _, tt := range []struct {
		name string
		args []string
		env  map[string]string
		code int
		want string
	}{
		{name: "flags", args: all(believe, show(a, "client")), code: CodeOK},
		{name: "environment", env: variables, code: CodeOK},
		{name: "environment for another server", args: []string{"--server", strings.Replace(server, "https", "http", 1)}, env: variables, code: CodeUsage, want: "write --server https://127"},
		{name: "no certificate", args: believe, code: CodeUnavailable, want: "--tls-cert"},
		{name: "a stranger's", args: all(believe, show(stranger, "client")), code: CodeUnavailable, want: "--tls-client-ca"},
		{name: "a server's", args: all(believe, show(a, "server")), code: CodeUnavailable, want: "--tls-client-ca"},
		{name: "another authority", args: all([]string{"--tls-ca", stranger.file("ca.pem")}, show(a, "client")), code: CodeUnavailable, want: "--tls-ca names the file"},
		{name: "no key", args: all(believe, []string{"--tls-cert", a.file("client.pem")}), code: CodeUsage, want: "--tls-cert is given without --tls-key"},
		{name: "two mistakes", args: []string{"--tls-key", a.file("client.key"), "--tls-ca", a.file("client.key")}, code: CodeUsage, want: "--tls-key is given without --tls-cert\nheadgate: the authorities of the server: " + a.file("client.key") + " has no certificate"},
		{name: "another key", args: all(believe, []string{"--tls-cert", a.file("client.pem"), "--tls-key", a.file("server.key")}), code: CodeUsage, want: "private key does not match"},
		{name: "a key with a password", args: all(believe, []string{"--tls-cert", a.file("client.pem"), "--tls-key", protected}), code: CodeUsage, want: "it is protected by a password"},
		{name: "an expired one", args: all(believe, show(a, "expired")), code: CodeUnavailable, want: "expired certificate"},
		{name: "another name", args: all(believe, show(a, "client"), []string{"--server", strings.Replace(server, "127.0.0.1", "localhost", 1)}), code: CodeUnavailable, want: "hint: the name or address in --server must stand"},
		{name: "no file", args: []string{"--tls-ca", a.file("none.pem")}, code: CodeUsage, want: "no such file"},
		{name: "in the clear", args: append([]string{"--server", "http://" + strings.TrimPrefix(server, "https://")}, believe...), code: CodeUsage, want: "--tls-ca is given, and --server is not the URL of a server that speaks TLS"},
	} {
		for _, command := range [][]string{{"check", "login", "anna"}, {"candidate"}} {
			t.Run(tt.name+"/"+command[0], func(t *testing.T) {
				for name, value := range tt.env {
					t.Setenv(name, value)
				}
				var out strings.Builder
				args := all(command, []string{"--timeout", "1m", "--server", server}, tt.args)
				if code := Run(t.Context(), args, &out, &out, ""); code != tt.code || !strings.Contains(out.String(), tt.want) {
					t.Errorf("exit code %d, want %d and %q:\n%s", code, tt.code, tt.want, &out)
				}
			})
		}
	}
	var out strings.Builder
	if code := Run(t.Context(), all([]string{"check", "login", "anna", "--store", "redis://127.0.0.1:1"}, believe), &out, &out, ""); code != CodeUsage {
		t.Errorf("exit code %d: %s", code, &out)
	}
	stop()
	if code := <-ended; code != CodeOK {
		t.Errorf("serve: exit code %d", code)
	}
}

// TestServersThatCannotBeBelieved asks one whose certificate has expired, and one that
// has none.
func TestServersThatCannotBeBelieved(t *testing.T) {
	plainEnvironment(t)
	a := newSigner(t)
	pair, err := tls.LoadX509KeyPair(a.file("expired.pem"), a.file("expired.key"))
	if err != nil {
		t.Fatal(err)
	}
	expired := httptest.NewUnstartedServer(http.NotFoundHandler())
	expired.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // It tells of clients that hang up.
	expired.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	expired.StartTLS()
	defer expired.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, tt := range []struct {
		server, want string
		code         int
	}{
		{expired.URL, "hint: the server needs a new certificate", CodeUnavailable},
		{strings.Replace(plain.URL, "http", "https", 1), "does not speak TLS\n  hint: write --server " + plain.URL, CodeUsage},
	} {
		var out strings.Builder
		if code := Run(t.Context(), []string{"candidate", "--timeout", "1m", "--server", tt.server, "--tls-ca", a.file("ca.pem")}, &out, &out, ""); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, tt.code, tt.want, &out)
		}
	}
}
