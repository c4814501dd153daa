package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Headgate returns the program headgate of this working tree: see [Build].
func Headgate() (string, error) { return Build("headgate", "server", "./cmd/headgate") }

// Build builds a command of this working tree as bin/tests/NAME, without what only a debugger
// needs, and returns its absolute path. dir is the directory of its module, relative to the top of
// the tree; environment is added to this process's. A program that is up to date is left alone, so
// that the packages of one run, some of which run at the same time, link it once: that takes some
// seconds of a processor.
func Build(name, dir, pkg string, environment ...string) (string, error) {
	top, err := above("go.work")
	if err != nil {
		return "", fmt.Errorf("servers: building %s: %w", name, err)
	}
	tests := filepath.Join(top, "bin", "tests")
	if err := os.MkdirAll(tests, 0o755); err != nil {
		return "", fmt.Errorf("servers: building %s: %w", name, err)
	}
	lock, err := os.Create(filepath.Join(tests, name+".lock"))
	if err != nil {
		return "", fmt.Errorf("servers: building %s: %w", name, err)
	}
	defer lock.Close() // which gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("servers: locking %s: %w", lock.Name(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	program := filepath.Join(tests, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, pkg)
	cmd.Dir, cmd.Env = filepath.Join(top, filepath.FromSlash(dir)), append(os.Environ(), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("servers: go build %s in %s: %w\n%s", pkg, dir, err, out)
	}
	return program, nil
}

// above is the nearest directory, of this one and those above it, that has such a file.
func above(file string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no directory above has %s", file)
		}
		dir = parent
	}
}
