package app

import (
	"crypto/tls"
	"fmt"
	"net/http"
)

// peerClient makes the HTTP client for asking the other instances. It is nil if the default client
// will do. The error is a [*SettingsError].
func (s *Settings) peerClient(own *certificates) (*http.Client, error) {
	if s.PeerCA == "" && own == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.PeerCA != "" {
		var err error
		if config.RootCAs, err = LoadAuthorities(s.PeerCA); err != nil {
			return nil, &SettingsError{[]string{fmt.Sprintf("--peer-ca: %v", err)}}
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
