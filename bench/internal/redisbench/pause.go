package redisbench

import (
	"fmt"
	"syscall"
)

// Pause freezes the server: its port still accepts connections, and nothing
// answers.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on. Stop needs it.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("redisbench: %v: %w", sig, err)
	}
	return nil
}
