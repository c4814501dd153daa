package servicebench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// What other benchmarks of servers take from this one.

// Load keeps so many connections busy with the requests, in turn, for about d, and
// returns how many were answered with 200. They are of HTTP/1.1, as they go over the
// wire.
func Load(ctx context.Context, addr string, connections int, requests [][]byte, d time.Duration) (int, error) {
	return load(ctx, addr, connections, requests, d)
}

// Build builds Headgate's server from the module at source into dir, and returns the
// program's name.
func Build(ctx context.Context, source, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/headgate")
	build.Dir = source
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("servicebench: building the server in %s: %w: %s", source, err, text)
	}
	return binary, nil
}

// Start runs a command, whose arguments name the address to listen on as "ADDR",
// until the function is called that it returns. The address is the one that was
// taken.
func Start(ctx context.Context, command []string) (addr string, stop func() error, err error) {
	p, err := start(ctx, command)
	if err != nil {
		return "", nil, err
	}
	return p.addr, p.stop, nil
}
