package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Memcached is a running memcached server.
type Memcached struct{ *Daemon }

// StartMemcached starts a memcached server with the given memory in MiB, and waits
// until it serves. It fails the test if the program is missing or does not come up. The
// server is killed when the test and its subtests end. What else there is are arguments
// of the program.
func StartMemcached(t testing.TB, mib int, more ...string) *Memcached {
	t.Helper()
	program, err := exec.LookPath("memcached")
	if err != nil {
		t.Fatalf("servers: memcached is not installed (%v): run `make test`, which installs it, or `apt-get install memcached`", err)
	}
	d := &Daemon{t: t, name: "memcached", dir: t.TempDir()}
	d.command = func() *exec.Cmd {
		// It refuses to run as root unless it is told a user; root will do for a test.
		args := []string{"-u", "root", "-l", loopback, "-p", strconv.Itoa(d.port), "-U", "0", "-m", strconv.Itoa(mib), "-t", "2"}
		cmd := exec.Command(program, append(args, more...)...)
		cmd.Dir, cmd.SysProcAttr = d.dir, attributes()
		return cmd
	}
	d.ready = func(ctx context.Context) error { return d.identifyMemcached(ctx) }
	startDaemon(d)
	return &Memcached{d}
}

// URL is the server's address as stores are configured with it.
func (m *Memcached) URL() string { return "memcached://" + m.Addr() }

// identifyMemcached returns an error unless a memcached answers on the port.
func (d *Daemon) identifyMemcached(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", d.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(conn, "version\r\n"); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(answer[:n]), "VERSION ") {
		return errors.New("something that is no memcached answers on its port")
	}
	return nil
}
