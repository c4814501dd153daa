//go:build !linux

package cli

import (
	"os"
	"os/exec"
)

// bind does nothing: what it does on Linux is not to be had everywhere.
func bind(*exec.Cmd, bool) {}

// tell sends a signal to the command. A command that has ended is told nothing.
func tell(child *exec.Cmd, s os.Signal, _ bool) { _ = child.Process.Signal(s) }
