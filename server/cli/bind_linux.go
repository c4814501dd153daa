package cli

import (
	"os"
	"os/exec"
	"syscall"
)

// bind has the system send SIGTERM to the command when this process dies, and gives the
// command a process group of its own if group is true.
func bind(child *exec.Cmd, group bool) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGTERM}
}

// tell sends a signal to the command, and with group to what it has started as well. A
// command that has ended is told nothing.
func tell(child *exec.Cmd, s os.Signal, group bool) {
	if number, ok := s.(syscall.Signal); ok && group {
		_ = syscall.Kill(-child.Process.Pid, number)
		return
	}
	_ = child.Process.Signal(s)
}
