//go:build !linux || !amd64

package servers

import (
	"errors"
	"time"
)

// SetClock sets the wall clock of a process, which it can on Linux and amd64 only.
func SetClock(int, time.Duration) error {
	return errors.New("servers: the clock of a process can only be set on Linux and amd64")
}
