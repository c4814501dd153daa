package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
)

// peerClient makes the HTTP client for asking the other instances. It is nil if the default client
// will do. The error is a [*SettingsError].
func (s *Settings) peerClient(own *certificates) (*http.Client, error) {
	if s.PeerCA == "" && own == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.PeerCA != "" {
		text, err := os.ReadFile(s.PeerCA)
		if err != nil {
			return nil, &SettingsError{[]string{fmt.Sprintf("--peer-ca: %v", err)}}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, &SettingsError{[]string{"--peer-ca: " + s.PeerCA + " has no certificate in PEM form"}}
		}
	}
	if own != nil {
		// Peers may ask for a client certificate, as this instance does if its settings say so.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &own.active.Load().Certificates[0], nil
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // It is one.
	transport.TLSClientConfig = config
	return &http.Client{Transport: transport}, nil
}
