package tunebench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// used is what a command has used.
type used struct {
	wall, cpu time.Duration
	memory    int64 // bytes, at most at once
	out       []byte
}

// timed runs a command and returns what it printed and used. A code besides 0 that is fine
// is given.
func timed(ctx context.Context, stdin io.Reader, fine int, name string, args ...string) (u used, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &problems
	began := time.Now()
	err = cmd.Run()
	u.wall = time.Since(began)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != fine) {
		return u, fmt.Errorf("tunebench: %s: %w: %s", filepath.Base(name), err, problems.Bytes())
	}
	u.out = out.Bytes()
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = r.Maxrss << 10
	}
	return u, nil
}
