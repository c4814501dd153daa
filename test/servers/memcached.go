package servers

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
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
	program, err := find("memcached", "memcached")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, name: "memcached", dir: t.TempDir()}
	d.command = func() *exec.Cmd {
		// It refuses to run as root unless it is told a user; root will do for a test.
		args := []string{"-u", "root", "-l", loopback, "-p", strconv.Itoa(d.port), "-U", "0", "-m", strconv.Itoa(mib), "-t", "2"}
		cmd := exec.Command(program, append(args, more...)...)
		cmd.Dir, cmd.SysProcAttr = d.dir, attributes()
		return cmd
	}
	d.ready = func(ctx context.Context) error {
		answer, err := d.greet(ctx, "version\r\n", len("VERSION "))
		if err == nil && answer != "VERSION " {
			err = errors.New("something that is no memcached answers on its port")
		}
		return err
	}
	startDaemon(d)
	return &Memcached{d}
}

// URL is the server's address as stores are configured with it.
func (m *Memcached) URL() string { return "memcached://" + m.Addr() }
