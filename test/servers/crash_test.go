package servers

import (
	"syscall"
	"testing"
)

// TestCrashed: a server that ends by itself has crashed; one that a test ends has not.
func TestCrashed(t *testing.T) {
	s := Start(t, Redis)
	if s.crashed() {
		t.Fatal("a server that runs has crashed")
	}
	s.process.signal(syscall.SIGKILL)
	<-s.process.done
	if !s.crashed() {
		t.Error("a server that was killed from elsewhere has not crashed")
	}
	s.Kill()
	if s.crashed() {
		t.Error("a server that the test has ended has crashed")
	}
}
