package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Database is a running PostgreSQL or memcached.
type Database struct {
	*Process
	// URL is what its store is opened with, Version what the program calls itself.
	URL, Version string
}

// StartMemcached runs a memcached with 512 MiB.
func StartMemcached(ctx context.Context) (*Database, error) {
	version, err := output(ctx, "memcached", "-V")
	if err != nil {
		return nil, err
	}
	p, err := Start(ctx, []string{"memcached", "-u", "root", "-l", "127.0.0.1", "-p", "PORT", "-U", "0", "-m", "512", "-M"})
	if err != nil {
		return nil, err
	}
	return &Database{p, "memcached://" + p.Addr, version}, nil
}

// StartPostgres runs a PostgreSQL with its own settings.
func StartPostgres(ctx context.Context) (*Database, error) {
	path := "postgres"
	installed, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	if len(installed) > 0 {
		path = installed[len(installed)-1]
	} else if path, err = exec.LookPath(path); err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	version, err := output(ctx, path, "--version")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	bin, data := filepath.Dir(path), filepath.Join(dir, "data")
	as, err := initialize(ctx, filepath.Join(bin, "initdb"), dir, data)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	command := []string{path, "-D", data, "-h", "127.0.0.1", "-p", "PORT", "-c", "unix_socket_directories="}
	url := func(addr string) string { return "postgres://headgate@" + addr + "/postgres" }
	p, err := launch(ctx, command, dir, as, func(ctx context.Context, addr string) error {
		return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-d", url(addr)).Run()
	})
	if err != nil {
		return nil, err
	}
	p.end = syscall.SIGINT // PostgreSQL then waits for nobody
	return &Database{p, url(p.Addr), version}, nil
}

// initialize writes an empty database, and returns as whom PostgreSQL runs: it refuses to run as
// root.
func initialize(ctx context.Context, initdb, dir, data string) (*syscall.SysProcAttr, error) {
	as := new(syscall.SysProcAttr)
	if os.Geteuid() == 0 {
		var err error
		if as.Credential, err = unprivileged(); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			return nil, fmt.Errorf("servers: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, initdb, "--auth=trust", "--username=headgate", "--encoding=UTF8", "--locale=C", "--pgdata="+data)
	cmd.Dir, cmd.SysProcAttr = dir, as
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("servers: initdb: %w: %s", err, out)
	}
	return as, nil
}

func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("servers: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("servers: there is neither a user postgres nor nobody to run PostgreSQL as")
}

// output is what a program prints.
func output(ctx context.Context, program, arg string) (string, error) {
	text, err := exec.CommandContext(ctx, program, arg).Output()
	if err != nil {
		return "", fmt.Errorf("servers: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
