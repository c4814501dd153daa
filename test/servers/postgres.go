package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Postgres is a running PostgreSQL server.
type Postgres struct {
	*Daemon

	data     string // where it keeps its files
	programs string // where those of PostgreSQL are
	// run makes a process of the user who owns the files.
	run func(ctx context.Context, program string, args ...string) *exec.Cmd
}

// StartPostgres starts a PostgreSQL server with an empty database, and waits until it
// serves. It fails the test if the programs are missing or it does not come up. The
// server is killed, and its directory removed, when the test and its subtests end.
// Settings are lines of its configuration, such as "max_connections=50".
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	p := newPostgres(t)
	p.initialise()
	p.serve(settings)
	return p
}

// StartReplica starts a server that follows this one, and waits until it serves what can be
// read from it. [Postgres.Promote] has it take over.
func (p *Postgres) StartReplica(settings ...string) *Postgres {
	p.t.Helper()
	r := newPostgres(p.t)
	r.do("pg_basebackup", "--host="+loopback, "--port="+strconv.Itoa(p.port), "--username=headgate",
		"--pgdata="+r.data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	r.serve(settings)
	return r
}

// Promote makes a replica a server of its own that can be written, and waits until it is.
func (p *Postgres) Promote() {
	p.t.Helper()
	p.do("pg_ctl", "promote", "--wait", "--pgdata="+p.data)
}

// newPostgres has a directory and nothing in it yet.
func newPostgres(t testing.TB) *Postgres {
	t.Helper()
	programs, err := postgresPrograms()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "headgate-postgres-") //nolint:usetesting // another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("servers: %v", err)
		}
	})
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	d := &Daemon{t: t, name: "postgres", dir: dir}
	d.ready = func(ctx context.Context) error {
		return exec.CommandContext(ctx, filepath.Join(programs, "pg_isready"), "-q", "-U", "headgate", "-d", "postgres", "-h", loopback, "-p", strconv.Itoa(d.port)).Run()
	}
	run := func(ctx context.Context, program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.SysProcAttr = dir, attributes()
		cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+dir)
		if owner != nil {
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = new(syscall.SysProcAttr)
			}
			cmd.SysProcAttr.Credential = owner
		}
		return cmd
	}
	return &Postgres{d, filepath.Join(dir, "data"), programs, run}
}

// do runs a program of PostgreSQL to its end.
func (p *Postgres) do(program string, args ...string) {
	p.t.Helper()
	if out, err := p.run(Bounded(p.t), filepath.Join(p.programs, program), args...).CombinedOutput(); err != nil {
		p.t.Fatalf("servers: %s: %v:\n%s", program, err, out)
	}
}

func (p *Postgres) serve(settings []string) {
	p.t.Helper()
	p.command = func() *exec.Cmd {
		args := []string{
			"-D", p.data, "-p", strconv.Itoa(p.port), "-h", loopback,
			"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=150", "-c", "shared_buffers=16MB",
		}
		for _, s := range settings {
			args = append(args, "-c", s)
		}
		return p.run(context.Background(), filepath.Join(p.programs, "postgres"), args...) // until it is killed
	}
	startDaemon(p.Daemon)
}

// URL is the server's address as stores and clients are configured with it.
func (p *Postgres) URL() string { return fmt.Sprintf("postgres://headgate@%s/postgres", p.Addr()) }

// postgresPrograms is the directory with the newest PostgreSQL. Debian keeps it out of
// the PATH.
func postgresPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for what is no number
			return n
		}
		newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
		return filepath.Dir(newest), nil
	}
	path, err := find("postgres", "postgresql")
	if err != nil {
		return "", err
	}
	return filepath.Dir(path), nil
}

// unprivileged is a user that PostgreSQL agrees to run as, or nil if the present one
// will do: it refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("servers: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("servers: PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

// initial is an archive of what initdb has made, once in a process: it takes a second of
// computing, and what it makes for the next server is the same. The archive's file has no name any
// more, so that nobody needs to remove it.
var initial struct {
	sync.Mutex
	archive *os.File
}

// initialise makes the server's files.
func (p *Postgres) initialise() {
	p.t.Helper()
	initial.Lock()
	defer initial.Unlock()
	if initial.archive == nil {
		p.make()
		return
	}
	if _, err := initial.archive.Seek(0, io.SeekStart); err != nil {
		p.t.Fatalf("servers: what initdb made: %v", err)
	}
	// A program is quicker than this process, in which the race detector would look at each byte.
	tar := p.run(Bounded(p.t), "tar", "-x", "-S", "-p", "-f", "-", "-C", p.dir)
	tar.Stdin = initial.archive
	if out, err := tar.CombinedOutput(); err != nil {
		p.t.Fatalf("servers: tar: %v:\n%s", err, out)
	}
}

// make makes the files of the first server, and the archive.
func (p *Postgres) make() {
	p.t.Helper()
	p.do("initdb", "--auth=trust", "--username=headgate", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata="+p.data)
	// These are two thirds of the files, and tests make no databases.
	single := p.run(Bounded(p.t), filepath.Join(p.programs, "postgres"), "--single", "-F", "-D", p.data, "postgres")
	single.Stdin = strings.NewReader("UPDATE pg_database SET datistemplate = false\nDROP DATABASE template0\nDROP DATABASE template1\n")
	if out, err := single.CombinedOutput(); err != nil || bytes.Contains(out, []byte("ERROR")) {
		p.t.Fatalf("servers: postgres --single: %v:\n%s", err, out)
	}
	archive, err := os.CreateTemp("", "headgate-postgres-")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.Remove(archive.Name()); err != nil {
		p.t.Fatal(err)
	}
	tar := p.run(Bounded(p.t), "tar", "-c", "-S", "-f", "-", "-C", p.dir, "data")
	tar.Stdout = archive
	problems := new(bytes.Buffer)
	tar.Stderr = problems
	if err := tar.Run(); err != nil {
		p.t.Fatalf("servers: tar: %v:\n%s", err, problems)
	}
	initial.archive = archive
}
