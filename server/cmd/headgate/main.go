// Headgate decides how much work may enter a system: it serves decisions over
// HTTP, and asks for them from the command line. Run headgate --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/headgate/headgate/server/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	args := os.Args[1:]
	// In place of the program of that name: by its path, or where the image of that program is
	// exchanged, whose command then comes behind the entry point of this one.
	if filepath.Base(os.Args[0]) == "ratelimit" && len(args) == 0 || len(args) == 1 && args[0] == "/bin/ratelimit" {
		args = []string{"ratelimit"}
	}
	os.Exit(cli.Run(ctx, args, os.Stdout, os.Stderr, version))
}
