package permits

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/store"
)

// Resource is what permits protect. It keeps the highest epoch that it has seen for each
// slot of each key, and takes no write with a lower one.
type Resource struct {
	limit   int
	permits store.Permits // to ask whose lease is live
	l       net.Listener
	all     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	seen     map[string]map[int]writer
	open     map[net.Conn]bool
	taken    int
	refused  int
	problems []string
}

// writer is who wrote last under a slot.
type writer struct {
	epoch  int64
	holder string
}

// NewResource returns a resource that listens until the test ends.
func NewResource(t testing.TB, limit int, permits store.Permits) *Resource {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Resource{limit: limit, permits: permits, l: l, seen: map[string]map[int]writer{}, open: map[net.Conn]bool{}}
	r.all.Go(r.serve)
	t.Cleanup(r.close)
	return r
}

func (r *Resource) serve() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.open[c] = true
		r.mu.Unlock()
		r.all.Go(func() {
			defer func() {
				_ = c.Close()
				r.mu.Lock()
				delete(r.open, c)
				r.mu.Unlock()
			}()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := fmt.Fprintln(c, r.write(lines.Text())); err != nil {
					return
				}
			}
		})
	}
}

func (r *Resource) close() {
	_ = r.l.Close()
	r.mu.Lock()
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}

// write is one write: a key, a holder, and a fence as it is written.
func (r *Resource) write(line string) string {
	parts := strings.Split(line, " ")
	if len(parts) != 4 {
		return r.problem("a write is %q", line)
	}
	key, holder := parts[0], parts[1]
	epoch, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return r.problem("a write is %q", line)
	}
	var slots []int
	for _, text := range strings.Split(parts[3], ",") {
		slot, err := strconv.Atoi(text)
		if err != nil || slot < 0 || slot >= r.limit {
			return r.problem("of %d slots there is %q", r.limit, text)
		}
		slots = append(slots, slot)
	}
	if r.admit(key, slots, writer{epoch, holder}) {
		return "taken"
	}
	// A lease does not come back to life: one that is live now was live then.
	all, err := r.permits.Holders(context.Background(), key)
	for _, l := range all.Leases {
		if err == nil && l.Epoch == epoch {
			return r.problem("%s was refused with %s, which is live: %+v", holder, parts[2], all.Leases)
		}
	}
	return "refused"
}

func (r *Resource) admit(key string, slots []int, w writer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen[key]
	if seen == nil {
		seen = map[int]writer{}
		r.seen[key] = seen
	}
	for _, slot := range slots {
		switch last := seen[slot]; {
		case last.epoch > w.epoch:
			r.refused++
			return false
		case last.epoch == w.epoch && last.holder != w.holder:
			r.problems = append(r.problems, fmt.Sprintf("slot %d of %s at epoch %d belongs to %s and %s", slot, key, w.epoch, last.holder, w.holder))
		}
	}
	for _, slot := range slots {
		seen[slot] = w
	}
	r.taken++
	return true
}

func (r *Resource) problem(format string, args ...any) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
	return "refused"
}

// report returns how many writes were taken and refused, and what is wrong.
func (r *Resource) report() (taken, refused int, problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken, r.refused, r.problems
}
