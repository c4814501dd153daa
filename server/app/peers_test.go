package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/server/insightapi"
)

// TestPeerCA has an instance ask another one whose certificate an authority of their own has
// signed, and which asks for a certificate itself.
func TestPeerCA(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	ours.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "instance"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, "both")
	secured := Settings{AdminToken: adminToken, TLSCert: ours.file("both.pem"), TLSKey: ours.file("both.key"), TLSClientCA: ours.file("ca.pem")}
	other := secured
	other.Instance = "other"
	peer := "https://" + start(t, other).Addr("http").String()
	strangers := newAuthority(t, "another one")
	for _, tt := range []struct {
		ca, fails string
	}{
		{ours.file("ca.pem"), ""},
		{strangers.file("ca.pem"), "certificate"},
		{"", "certificate"},
	} {
		one := secured
		one.Instance, one.Peers, one.PeerCA = "one", []string{peer}, tt.ca
		r := start(t, one)
		config := ours.trusting()
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(ours.file("both.pem"), ours.file("both.key"))
			return &pair, err
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		ask := func() insightapi.Instance {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.Addr("http").String()+"/v1/insight/now", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+adminToken)
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			var now insightapi.Now
			err = json.NewDecoder(response.Body).Decode(&now)
			_ = response.Body.Close()
			if err != nil || len(now.Instances) != 2 {
				t.Fatalf("%+v, %v", now.Instances, err)
			}
			return now.Instances[1]
		}
		// A peer on a busy machine may not answer in time, once.
		for deadline := time.Now().Add(time.Minute); ; {
			got := ask()
			if got.OK == (tt.fails == "") && strings.Contains(got.Error, tt.fails) && (!got.OK || got.Name == "other") {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("with the authorities %q: %+v", tt.ca, got)
				break
			}
		}
	}

	for _, tt := range []struct {
		settings Settings
		want     string
	}{
		{Settings{AdminToken: adminToken, Peers: []string{"http://127.0.0.1:1"}, PeerCA: ours.file("ca.pem")}, "--peer-ca: no peer, consumer or history has an https:// URL"},
		{Settings{Consumers: []string{"billing:9090"}}, "--consumer: it is not the URL of a program's metrics"},
		{Settings{History: "ftp://prometheus:9090"}, "--history: it is not the URL of a Prometheus"},
		{Settings{History: "http://prometheus:9090?job-name=x"}, "--history: its query must have labels"},
		{Settings{History: "/tmp/history", NoInsight: true}, "--history: insight, which it goes on from, is turned off"},
		{Settings{Consumers: []string{"http://127.0.0.1:1/metrics"}, NoInsight: true}, "--consumer: insight, which shows consumers, is turned off"},
		{Settings{AdminToken: adminToken, Peers: []string{peer}, PeerCA: ours.file("none.pem")}, "--peer-ca: open"},
		{Settings{AdminToken: adminToken, Peers: []string{peer}, PeerCA: ours.file("ca.key")}, "no certificate in PEM form"},
	} {
		if _, err := New(context.Background(), tt.settings); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, not %q", err, tt.want)
		}
	}
}
