package cli

import (
	"os"
	"os/exec"
	"syscall"
)

// bind makes the system send SIGTERM to the command when this process dies. If group is true, it
// gives the command a process group of its own.
func bind(child *exec.Cmd, group bool) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGTERM}
}

// signalChild sends a signal to the command. If group is true, it also sends it to the processes that the
// command has started. If the command has ended, it does nothing.
func signalChild(child *exec.Cmd, s os.Signal, group bool) {
	if number, ok := s.(syscall.Signal); ok && group {
		_ = syscall.Kill(-child.Process.Pid, number)
		return
	}
	_ = child.Process.Signal(s)
}
