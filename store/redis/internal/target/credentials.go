package target

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// password is a password in a file. The file is read again for each connection, so that the
// password can be changed. If the file cannot be read at that moment, the previous password is
// used.
type password struct {
	file string // "" if the password never changes
	last atomic.Pointer[string]
}

func newPassword(file, first string) *password {
	p := &password{file: file}
	p.last.Store(&first)
	return p
}

func (p *password) now() string {
	if p.file != "" {
		if text, err := secret(p.file); err == nil {
			p.last.Store(&text)
		}
	}
	return *p.last.Load()
}

// identify makes the client ask for its credentials at each connection, if the password comes from
// a file.
func (t *Target) identify(o *rueidis.ClientOption) {
	if t.passwordFile == "" {
		return
	}
	own := newPassword(t.passwordFile, o.Password)
	o.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		return rueidis.AuthCredentials{Username: t.user, Password: own.now()}, nil
	}
}

// dial connects, over TLS if there is a configuration for it.
func dial(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// secret reads a password from the first line of a file.
func secret(name string) (string, error) {
	const most = 4096
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case len(text) > most:
		return "", fmt.Errorf("%s has more than %d bytes", name, most)
	case password == "":
		return "", fmt.Errorf("%s is empty", name)
	case strings.ContainsAny(password, "\r\n"):
		return "", fmt.Errorf("%s has more than one line", name)
	}
	return password, nil
}
