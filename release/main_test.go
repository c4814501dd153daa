package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the server of the working tree, as the packages and the image hold it. Its directory
// is removed when the tests are over.
var program string

func TestMain(m *testing.M) { os.Exit(withProgram(m)) }

func withProgram(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headgate-release-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "headgate")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/headgate/headgate/server/cmd/headgate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building headgate: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
