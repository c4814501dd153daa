//go:build !linux

package cli

import (
	"os"
	"os/exec"
)

// bind does nothing, because not every system offers what it does on Linux.
func bind(*exec.Cmd, bool) {}

// signalChild sends a signal to the command. If the command has ended, it does nothing.
func signalChild(child *exec.Cmd, s os.Signal, _ bool) { _ = child.Process.Signal(s) }
