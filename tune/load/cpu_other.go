//go:build !linux

package load

import (
	"errors"
	"time"
)

// nap sleeps for a short time.
func nap(d time.Duration) { time.Sleep(d) }

// ownCPU is not known here.
func ownCPU() time.Duration { return 0 }

// cpuOf is not known here.
func cpuOf(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
