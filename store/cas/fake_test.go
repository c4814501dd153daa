package cas_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store/cas"
)

// fake is a backend over a map, with versions: optimistic, as most are.
type fake struct {
	keys, bytes int
	// before is called before a commit, without the lock, if it is not nil.
	before func(keys []string)
	// beginning is called before a begin, without the lock, if it is not nil.
	beginning func()
	// sought is called before due keys are looked for, without the lock, if it is not nil.
	sought func()
	ahead  atomic.Int64 // of its clock to the machine's, in µs
	broken error        // every call returns it

	mu      sync.Mutex // guards what follows
	values  map[string]versioned
	version int64
	begun   int
}

type versioned struct {
	value        []byte
	version      int64
	expires, due int64
}

func newFake(keys int) *fake { return &fake{keys: keys, values: map[string]versioned{}} }

type fakeAttempt struct {
	f     *fake
	keys  []string
	seen  []versioned
	now   int64
	ended bool
}

func (f *fake) now() int64 { return time.Now().UnixMicro() + f.ahead.Load() }

func (f *fake) MaxKeys() int  { return f.keys }
func (f *fake) MaxValue() int { return f.bytes }

func (f *fake) Begin(ctx context.Context, keys []string) (cas.Attempt, error) {
	if err := errors.Join(ctx.Err(), f.broken); err != nil {
		return nil, err
	}
	if f.beginning != nil {
		f.beginning()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
	a := &fakeAttempt{f: f, keys: keys, now: f.now()}
	for _, k := range keys {
		a.seen = append(a.seen, f.values[k])
	}
	return a, nil
}

func (a *fakeAttempt) Now() int64         { return a.now }
func (a *fakeAttempt) Value(i int) []byte { return a.seen[i].value }
func (a *fakeAttempt) Cancel()            { a.end() }

func (a *fakeAttempt) end() {
	if a.ended {
		panic("an attempt was ended twice")
	}
	a.ended = true
}

func (a *fakeAttempt) Commit(_ context.Context, changes []cas.Change) (bool, error) {
	a.end()
	if a.f.before != nil {
		a.f.before(a.keys)
	}
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	for i, k := range a.keys {
		if a.f.values[k].version != a.seen[i].version {
			return false, nil
		}
	}
	for _, c := range changes {
		if a.f.bytes > 0 && len(c.Value) > a.f.bytes {
			return false, errors.New("a value is too long")
		}
		if c.Value == nil {
			delete(a.f.values, a.keys[c.Key])
			continue
		}
		a.f.version++
		a.f.values[a.keys[c.Key]] = versioned{c.Value, a.f.version, c.Expires, c.Due}
	}
	return true, nil
}

func (f *fake) Due(_ context.Context, prefix string, now int64, limit int) ([]string, error) {
	if f.sought != nil {
		f.sought()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	for k, v := range f.values {
		if strings.HasPrefix(k, prefix) && v.due != 0 && v.due <= now {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return int(f.values[a].due - f.values[b].due) })
	return keys[:min(limit, len(keys))], f.broken
}

func (f *fake) Clock(context.Context) (int64, error) { return f.now(), f.broken }

func (f *fake) Forget(_ context.Context, prefix string, now int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now == 0 {
		now = f.now()
	}
	for k, v := range f.values {
		if strings.HasPrefix(k, prefix) && v.expires <= now && v.due == 0 {
			delete(f.values, k)
		}
	}
	return f.broken
}

// set stores bytes under every key that there is.
func (f *fake) set(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, v := range f.values {
		f.version++
		f.values[k] = versioned{b, f.version, v.expires, v.due}
	}
}

func (f *fake) attempts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}
