package permits

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// Place is a store to try.
type Place struct {
	// URL is the store's for a server at that address.
	URL func(addr string) string
	// Addr is where the server is.
	Addr string
	// SetClock sets the server's clock ahead, or back.
	SetClock func(ahead time.Duration)
	// Left is how many keys or rows the server has.
	Left func() int64
}

// Result is what trials have shown.
type Result struct {
	// Faults counts the trials by what was done.
	Faults map[string]int
	// Taken and Refused are writes at the resource.
	Taken, Refused int
	// Looks is how often the store was asked for all holders.
	Looks int
	// Back is how long after a process was killed the store was asked for the last time
	// and still listed what the process held: the longest of all, and of those during
	// which the store's clock was stepped.
	Back, BackStepped time.Duration
}

const processes = 8

// trials is a run.
type trials struct {
	t        testing.TB
	place    Place
	permits  closer
	resource *Resource

	mu     sync.Mutex // guards what follows
	left   int        // trials that are still to be made
	named  int
	steps  int // of the store's clock
	result Result
}

// Run makes that many trials.
func Run(t testing.TB, place Place, count int) Result {
	t.Helper()
	permits, err := open(t.Context(), place.URL(place.Addr), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer permits.Close()
	r := &trials{t: t, place: place, permits: permits, resource: NewResource(t, limit, permits), left: count, result: Result{Faults: map[string]int{}}}
	over := make(chan struct{})
	var watching, all sync.WaitGroup
	watching.Go(func() { r.watch(over) })
	for range processes {
		line := NewLine(t, place.Addr)
		all.Go(func() { r.faults(line) })
	}
	all.Go(r.clock)
	all.Wait()
	close(over)
	watching.Wait()
	stores.Until(t, "nothing is left behind", func() bool { return place.Left() == 0 })
	var problems []string
	r.result.Taken, r.result.Refused, problems = r.resource.report()
	for i, p := range problems {
		if i == 10 {
			t.Errorf("and %d more", len(problems)-i)
			break
		}
		t.Error(p)
	}
	if r.result.Taken == 0 {
		t.Error("nothing was written")
	}
	return r.result
}

// next takes a trial, unless all have been made.
func (r *trials) next(fault string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 {
		return false
	}
	r.left--
	r.result.Faults[fault]++
	return true
}

// watch looks who holds what, again and again.
func (r *trials) watch(over <-chan struct{}) {
	for looks := 0; ; looks++ {
		for _, key := range keys {
			all, err := r.permits.Holders(r.t.Context(), key)
			if err != nil {
				r.t.Error(err)
				return
			}
			if problem := wrong(&all); problem != "" {
				r.t.Errorf("%s: %+v", problem, all.Leases)
				return
			}
		}
		select {
		case <-over:
			r.result.Looks = looks
			return
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// wrong says what is wrong with the holders of a key.
func wrong(all *store.PermitHolders) string {
	if n := all.InUse(); n > limit {
		return fmt.Sprintf("%d units of %d are in use", n, limit)
	}
	taken := map[int]bool{}
	for _, l := range all.Leases {
		for _, slot := range l.Slots {
			if taken[slot] || slot < 0 || slot >= limit {
				return fmt.Sprintf("slot %d of %d is taken twice, or is none", slot, limit)
			}
			taken[slot] = true
		}
		if l.Remaining > ttl || l.TTL != ttl {
			return fmt.Sprintf("a lease for %v lasts for %v", l.TTL, l.Remaining)
		}
	}
	return ""
}

// process is one that works under permits.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  bytes.Buffer
}

func (r *trials) start(line *Line) *process {
	r.mu.Lock()
	r.named++
	p := &process{name: fmt.Sprintf("p%d", r.named), cmd: exec.Command(os.Args[0])}
	r.mu.Unlock()
	servers.Bind(p.cmd)
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", settings, r.place.URL(line.Addr()), r.resource.l.Addr(), p.name))
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		r.t.Error(err)
	}
	if err := p.cmd.Start(); err != nil {
		r.t.Error(err)
	}
	return p
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// faults does one thing after another to a process and its line, and has it end in the end.
func (r *trials) faults(line *Line) {
	p := r.start(line)
	for {
		time.Sleep(rand.N(ttl))
		switch rand.N(8) {
		case 0, 1, 2:
			if !r.next("killed") {
				r.finish(p)
				return
			}
			steps := r.stepped(0)
			p.signal(syscall.SIGKILL)
			_ = p.cmd.Wait() // it was killed
			r.freed(p.name, time.Now(), steps)
			p = r.start(line)
		case 3, 4:
			if r.next("stopped beyond the TTL") {
				p.signal(syscall.SIGSTOP)
				time.Sleep(ttl + rand.N(ttl))
				p.signal(syscall.SIGCONT)
			}
		case 5:
			if r.next("stopped for a part of the TTL") {
				p.signal(syscall.SIGSTOP)
				time.Sleep(rand.N(ttl / 2))
				p.signal(syscall.SIGCONT)
			}
		case 6:
			if r.next("cut off") {
				line.Cut()
				time.Sleep(rand.N(2 * ttl))
				line.Mend()
			}
		case 7:
			if r.next("connections reset") {
				line.Reset()
			}
		}
	}
}

// stepped adds to the steps of the store's clock, and returns how many there were.
func (r *trials) stepped(more int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps += more
	return r.steps
}

// freed waits until nothing is held by a process that was killed.
func (r *trials) freed(name string, since time.Time, steps int) {
	last := since
	stores.Until(r.t, "what a killed process held is free", func() bool {
		asked := time.Now()
		for _, key := range keys {
			all, err := r.permits.Holders(r.t.Context(), key)
			if err != nil {
				return false
			}
			for _, l := range all.Leases {
				if strings.HasPrefix(l.Holder, name+"/") {
					last = asked
					return false
				}
			}
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps == steps {
		r.result.Back = max(r.result.Back, last.Sub(since))
	} else {
		r.result.BackStepped = max(r.result.BackStepped, last.Sub(since))
	}
}

// finish has a process end in good order.
func (r *trials) finish(p *process) {
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		r.t.Errorf("a process that holds permits: %v: %s", err, p.said.String())
	}
}

// clock sets the server's clock ahead and back while there are trials.
func (r *trials) clock() {
	for {
		time.Sleep(2*ttl + rand.N(4*ttl))
		if !r.next("the store's clock steps") {
			r.stepped(1)
			r.place.SetClock(0)
			return
		}
		// As far as a step back is harmless for fences: while something is held of each
		// key, or was shortly before, epochs grow whatever the clock says.
		r.stepped(1)
		r.place.SetClock(time.Duration(rand.N(4)) * time.Second)
		r.stepped(1)
	}
}

// Redis is a server of the RESP kind as a place.
func Redis(s *servers.Server) Place {
	return Place{
		URL: func(addr string) string { return "redis://" + addr }, Addr: s.Addr(), SetClock: s.SetClock,
		Left: func() int64 {
			n, err := s.Do(context.Background(), "DBSIZE")
			if size, ok := n.(int64); ok && err == nil {
				return size
			}
			return -1
		},
	}
}
