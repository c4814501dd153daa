package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
)

// peerClient makes what asks the other instances. It is nil if nothing about it is special.
// The error is a [*SettingsError].
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
		// For peers that ask clients for a certificate, as this instance may do itself.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &own.active.Load().Certificates[0], nil
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // It is one.
	transport.TLSClientConfig = config
	return &http.Client{Transport: transport}, nil
}
