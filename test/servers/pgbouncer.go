package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// PgBouncer is a running pooler before a PostgreSQL server.
type PgBouncer struct{ *Daemon }

// StartPgBouncer starts a PgBouncer before the server, and waits until it serves. Its
// mode is "session", "transaction" or "statement"; settings are lines of its
// configuration besides, such as "default_pool_size=2". It fails the test if the program
// is missing or does not come up, and is killed when the test and its subtests end.
func StartPgBouncer(t testing.TB, before *Postgres, mode string, settings ...string) *PgBouncer {
	t.Helper()
	program, err := find("pgbouncer", "pgbouncer")
	if err != nil {
		// Debian keeps it out of the PATH of those who are not root.
		if program, err = find("/usr/sbin/pgbouncer", "pgbouncer"); err != nil {
			t.Fatal(err)
		}
	}
	owner, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, name: "pgbouncer", dir: t.TempDir()}
	d.command = func() *exec.Cmd {
		lines := append([]string{
			"[databases]", fmt.Sprintf("* = host=%s port=%d user=headgate", loopback, before.port),
			"[pgbouncer]", "listen_addr=" + loopback, "listen_port=" + strconv.Itoa(d.port), "unix_socket_dir=",
			"auth_type=any", "pool_mode=" + mode, "max_client_conn=500",
		}, settings...)
		// The server's directory is one that their user may enter.
		config := filepath.Join(before.dir, fmt.Sprintf("pgbouncer-%d.ini", d.port))
		cmd := exec.Command(program, "--quiet", config)
		cmd.Err = os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644) //nolint:gosec // there is nothing secret in it
		cmd.SysProcAttr = attributes()
		if owner != nil {
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = new(syscall.SysProcAttr)
			}
			cmd.SysProcAttr.Credential = owner
		}
		return cmd
	}
	d.ready = func(ctx context.Context) error {
		_, err := d.greet(ctx, "", 0)
		return err
	}
	startDaemon(d)
	return &PgBouncer{d}
}

// URL is the pooler's address as stores and clients are configured with it.
func (p *PgBouncer) URL() string { return fmt.Sprintf("postgres://headgate@%s/postgres", p.Addr()) }
