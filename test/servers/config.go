package servers

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
)

// settings are what a server is started with.
type settings struct {
	directives   [][]string
	password     string
	certificates *Certificates
	sentinel     bool // it is one, and not a server of data
	cluster      bool // it can be a part of one
}

// Option changes how a server is started.
type Option func(*settings)

// Directive adds a line to the server's configuration file, such as
// Directive("maxmemory", "10mb"). It comes after the launcher's own lines, so
// that it overrides them; a later Directive of the same name overrides an earlier
// one.
func Directive(name string, values ...string) Option {
	return func(s *settings) {
		s.directives = append(s.directives, append([]string{name}, values...))
	}
}

// Password makes the server ask for a password. [Server.URL] contains it.
func Password(password string) Option {
	return func(s *settings) {
		s.password = password
		s.directives = append(s.directives, []string{"requirepass", password})
		if !s.sentinel {
			// For servers that replicate one another.
			s.directives = append(s.directives, []string{"masterauth", password})
		}
	}
}

// TLS makes the server speak nothing else, and ask its clients for a certificate.
// [Server.URL] names the files for it.
func TLS(c *Certificates) Option { return func(s *settings) { s.certificates = c } }

// MaxMemory bounds the server's memory to so many bytes; a write beyond it is an
// error, and nothing is evicted.
func MaxMemory(bytes int64) Option {
	return func(s *settings) {
		s.directives = append(s.directives,
			[]string{"maxmemory", fmt.Sprint(bytes)},
			[]string{"maxmemory-policy", "noeviction"})
	}
}

// config is the server's configuration file: reachable from this machine only,
// in the foreground, with its files in dir, and with nothing written to disk. bus
// is the port that nodes of a cluster speak to each other on.
func (s *settings) config(dir string, port, bus int) string {
	lines := [][]string{
		{"bind", loopback},
		{"protected-mode", "yes"},
		{"dir", dir},
		{"daemonize", "no"},
	}
	if c := s.certificates; c != nil {
		lines = append(lines,
			[]string{"port", "0"},
			[]string{"tls-port", fmt.Sprint(port)},
			[]string{"tls-cert-file", c.ServerCert},
			[]string{"tls-key-file", c.ServerKey},
			[]string{"tls-ca-cert-file", c.CA},
			[]string{"tls-auth-clients", "yes"},
			[]string{"tls-replication", "yes"})
	} else {
		lines = append(lines, []string{"port", fmt.Sprint(port)})
	}
	if !s.sentinel {
		lines = append(lines, []string{"save", ""}, []string{"appendonly", "no"})
	}
	if s.cluster {
		lines = append(lines,
			[]string{"cluster-enabled", "yes"},
			[]string{"cluster-config-file", "nodes.conf"},
			[]string{"cluster-port", fmt.Sprint(bus)})
		if s.certificates != nil {
			lines = append(lines, []string{"tls-cluster", "yes"})
		}
	}
	var b strings.Builder
	for _, line := range append(lines, s.directives...) {
		b.WriteString(line[0])
		for _, value := range line[1:] {
			b.WriteByte(' ')
			b.WriteString(quote(value))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// addTo adds to a URL what clients must know besides the address.
func (s *settings) addTo(u *url.URL) {
	if s.password != "" {
		u.User = url.UserPassword("default", s.password)
	}
	if c := s.certificates; c != nil {
		u.Scheme = strings.Replace(u.Scheme, "redis", "rediss", 1)
		q := u.Query()
		q.Set("ca_file", c.CA)
		q.Set("cert_file", c.ClientCert)
		q.Set("key_file", c.ClientKey)
		u.RawQuery = q.Encode()
	}
}

// clientTLS is what connections to the server are encrypted with, or nil.
func (s *settings) clientTLS() *tls.Config {
	if s.certificates == nil {
		return nil
	}
	return s.certificates.client
}

// quote writes a value so that the server's parser of configuration lines reads
// it back as it is, spaces, quotes and all.
func quote(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
