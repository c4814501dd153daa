package servicebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Apart is the machine divided in two: one core for the server that is measured,
// the others for whoever asks it. Without that a request waits for a core several
// times on its way, up to the kernel's time slice of some milliseconds each time, and
// what is measured is the kernel's patience.
type Apart struct {
	ours, servers, before unix.CPUSet
	processes             []int
	cores                 int // GOMAXPROCS before
}

// Divide moves this process and the others that are named, such as a Redis, off the
// first core that this one may use. Close undoes it.
func Divide(others ...int) (_ *Apart, err error) {
	a := &Apart{processes: append([]int{os.Getpid()}, others...), cores: runtime.GOMAXPROCS(0)}
	if err := unix.SchedGetaffinity(0, &a.before); err != nil {
		return nil, fmt.Errorf("servicebench: which cores there are: %w", err)
	}
	if a.before.Count() < 2 {
		return nil, errors.New("servicebench: the server and its callers need a core each, and there is only one")
	}
	a.ours = a.before
	for core := 0; a.servers.Count() == 0; core++ {
		if a.before.IsSet(core) {
			a.servers.Set(core)
			a.ours.Clear(core)
		}
	}
	runtime.GOMAXPROCS(min(a.cores, a.ours.Count()))
	if err := move(&a.ours, a.processes); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close lets all run on all cores again.
func (a *Apart) Close() error {
	runtime.GOMAXPROCS(a.cores)
	return move(&a.before, a.processes)
}

// Start is [Start] on the servers' core.
func (a *Apart) Start(ctx context.Context, command []string) (addr string, stop func() error, err error) {
	// What a thread starts runs where the thread does.
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &a.servers); err != nil {
		runtime.UnlockOSThread()
		return "", nil, fmt.Errorf("servicebench: moving to the servers' core: %w", err)
	}
	defer func() {
		if wrong := unix.SchedSetaffinity(0, &a.ours); wrong != nil {
			// The thread ends with the goroutine that keeps it locked.
			err = errors.Join(err, fmt.Errorf("servicebench: moving off the servers' core: %w", wrong))
			return
		}
		runtime.UnlockOSThread()
	}()
	return Start(ctx, command)
}

// move has all threads of the processes run on the cores. Threads that begin
// meanwhile are on the cores of the threads that begin them, so a second look finds
// the last of them.
func move(to *unix.CPUSet, processes []int) error {
	for _, pid := range processes {
		for range 2 {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
			if err != nil || len(threads) == 0 {
				return errors.Join(fmt.Errorf("servicebench: process %d has no threads", pid), err)
			}
			for _, thread := range threads {
				id, err := strconv.Atoi(filepath.Base(thread))
				if err == nil {
					err = unix.SchedSetaffinity(id, to)
				}
				if err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("servicebench: moving thread %s: %w", thread, err)
				}
			}
		}
	}
	return nil
}
