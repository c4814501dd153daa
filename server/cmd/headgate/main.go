// Headgate decides how much work may enter a system: it serves decisions over
// HTTP, and asks for them from the command line. Run headgate --help.
package main

import (
	"bytes"
	"context"
	"io"
	"log" //nolint:depguard // net/http logs by it
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/headgate/headgate/server/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// withoutAnswers is the log of net/http's transport, which shows the beginning of an answer that
// comes when none is waited for. That may be what a model has said, so it is left out.
type withoutAnswers struct{ io.Writer }

// Write implements [io.Writer].
func (w withoutAnswers) Write(line []byte) (int, error) {
	told, answer, _ := bytes.Cut(line, []byte(" starting with "))
	if answer != nil {
		told = append(told[:len(told):len(told)], '\n')
	}
	_, err := w.Writer.Write(told)
	return len(line), err
}

func main() {
	log.SetOutput(withoutAnswers{os.Stderr})
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
