package stores

import (
	"sync"
	"testing"
	"time"
)

// most is how long anything may take. It is for what never comes: a busy machine takes
// its time.
const most = 2 * time.Minute

// Until waits for what must come to be.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}

// Ended waits for what must come to an end, and returns what it leaves.
func Ended[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(most):
		t.Fatalf("not within %v: %s", most, what)
	}
	return v
}

// Waited is closed when all of the group have ended.
func Waited(all *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	return done
}
