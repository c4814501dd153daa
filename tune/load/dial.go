package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"
)

// ErrRemote is the error of a target that is not on this machine, unless [Options.Remote]
// allows that.
var ErrRemote = errors.New("headgate: the target is not a loopback address")

// ErrUnreachable is the error of a target that does not accept connections.
var ErrUnreachable = errors.New("headgate: the target cannot be reached")

// dialer opens connections to one host. It resolves the name once, so that resolving is not
// measured, and so that a later answer cannot lead elsewhere.
type dialer struct {
	host  string
	addrs []string
	good  atomic.Int32 // the index of the address that was reached last
	tls   *tls.Config  // nil without TLS
	pipe  func(context.Context) (net.Conn, error)
}

// newDialer resolves the host of a URL.
func newDialer(ctx context.Context, u *url.URL, o *Options, protocols ...string) (*dialer, error) {
	d := &dialer{host: u.Host, pipe: o.pipe}
	if u.Scheme == "https" {
		// Whoever measures a server of their own may not have a certificate for it.
		d.tls = &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: o.Insecure, NextProtos: protocols, MinVersion: tls.VersionTLS12} //nolint:gosec // G402: only if the caller asks for it.
	}
	if d.pipe != nil {
		return d, nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); !ip.IsLoopback() && !o.Remote {
			if _, err := netip.ParseAddr(u.Hostname()); err == nil {
				return nil, fmt.Errorf("%w: %s", ErrRemote, ip)
			}
			return nil, fmt.Errorf("%w: %s is %s", ErrRemote, u.Hostname(), ip)
		}
		d.addrs = append(d.addrs, net.JoinHostPort(ip.String(), port))
	}
	return d, nil
}

// dial opens a connection. It begins with the address that was reached last.
func (d *dialer) dial(ctx context.Context) (conn net.Conn, err error) {
	if d.pipe != nil {
		return d.pipe(ctx)
	}
	var plain net.Dialer
	good := d.good.Load()
	for i := range d.addrs {
		n := (int(good) + i) % len(d.addrs)
		if conn, err = plain.DialContext(ctx, "tcp", d.addrs[n]); err == nil {
			d.good.Store(int32(n))
			break
		}
	}
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// reach returns an error if nobody accepts a connection.
func (d *dialer) reach(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn.Close()
}
