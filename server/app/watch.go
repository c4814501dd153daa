package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// lookEvery is how often the policy's files are looked at. A change takes effect once two looks in
// a row have seen the same, so that a file that is being written is not read half written.
const lookEvery = 500 * time.Millisecond

// snapshot is the state of files at some time.
type snapshot []fileState

// fileState is the state of one file. Links are followed: it is the state of the file at their end,
// however many directories were exchanged on the way.
type fileState struct {
	name string
	sum  [sha256.Size]byte
	// wrong says why the file could not be read; "" if it could.
	wrong string

	info fs.FileInfo
	at   time.Time // when it was read
}

// settles is how long after its last change a file may change again without a change of its times:
// the coarsest resolution of any file system.
const settles = 2 * time.Second

// look reads the files. It does not read those that, by everything known without reading, are as
// they were in the snapshot before.
func look(files []string, before snapshot) snapshot {
	now := make(snapshot, 0, len(files))
	for _, name := range files {
		if slices.ContainsFunc(now, func(f fileState) bool { return f.name == name }) {
			continue
		}
		var known *fileState
		if i := slices.IndexFunc(before, func(f fileState) bool { return f.name == name }); i >= 0 {
			known = &before[i]
		}
		now = append(now, lookAt(name, known))
	}
	return now
}

func lookAt(name string, known *fileState) fileState {
	state := fileState{name: name, at: time.Now()}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		state.wrong = err.Error()
		return state
	case !info.Mode().IsRegular():
		state.wrong = "it is not a regular file"
		return state
	case known != nil && known.info != nil && os.SameFile(known.info, info) && known.info.Size() == info.Size() &&
		known.info.ModTime().Equal(info.ModTime()) && known.at.Sub(info.ModTime()) > settles:
		return *known
	}
	if state.sum, err = sumOf(name); err != nil {
		state.wrong = err.Error()
		return state
	}
	state.info = info
	return state
}

func sumOf(name string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return sum, err
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// same reports whether two snapshots have the same contents.
func (s snapshot) same(other snapshot) bool {
	return slices.EqualFunc(s, other, func(a, b fileState) bool {
		return a.name == b.name && a.sum == b.sum && a.wrong == b.wrong
	})
}

// origin is the files that something is read from. It is not safe for concurrent use.
type origin struct {
	files []string
	seen  snapshot // what they held when they were last read; nil if nobody knows
}

// readTries is how often files are read that change meanwhile, before they are left
// to whoever writes them.
const readTries = 3

var errChanging = errors.New("the files change while they are read; write each of them elsewhere and rename it, or ask again when they are written")

// read calls one, which reads the files and returns their names, until they have stood
// still meanwhile, and returns its error. named are the files as far as that is known
// before they are read.
func (o *origin) read(named func() []string, one func() (files []string, err error)) error {
	var err error
	settled := false
	for try := 0; try < readTries && !settled; try++ {
		// The snapshot comes first, so that a change while the files are read
		// shows. That needs their names, which the reading may change.
		expected := named()
		o.seen = look(expected, o.seen)
		o.files, err = one()
		settled = slices.Equal(o.files, expected) && look(expected, o.seen).same(o.seen)
	}
	if !settled {
		o.seen = nil // Whatever the files become is to be read again.
		if err == nil {
			err = errChanging
		}
	}
	return err
}

// watch reloads the policy when its files change, until ctx ends.
func (s *source) watch(ctx context.Context, every time.Duration) {
	if s.fixed == "" {
		s.reloads.watch(ctx, every, s.watched, func(reason string) { _, _, _ = s.reloadLocked(reason) })
	}
}

// watch calls reload, with the mutex held, when the named files are not what was loaded but what they
// were at the last look, until ctx ends. What went wrong is for reload to log.
func (r *reloads) watch(ctx context.Context, every time.Duration, named func() []string, reload func(reason string)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last snapshot
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			last = r.notice(last, named, reload)
		}
	}
}

func (r *reloads) notice(last snapshot, named func() []string, reload func(reason string)) (now snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := last
	if known == nil {
		known = r.origin.seen
	}
	now = look(named(), known)
	if !now.same(r.origin.seen) && now.same(last) {
		reload("a file has changed")
	}
	return now
}
