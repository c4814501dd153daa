package insightapi

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Audit remembers the last things that people did to this instance, and tells the log. It
// is safe for concurrent use; the zero Audit is ready.
type Audit struct {
	// Logger takes each entry; nil means none.
	Logger *slog.Logger

	mu      sync.Mutex
	entries []Entry // the newest last
}

// maxEntries is how many entries are remembered.
const maxEntries = 200

// Entry is one thing that was done.
type Entry struct {
	Instance string `json:"instance"`
	// At is when, in milliseconds since 1970.
	At int64 `json:"at"`
	// Who is the address it was done from.
	Who string `json:"who"`
	// What is "login", "logout", "reset" or "reload".
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	// OK says that it worked.
	OK bool `json:"ok"`
}

// Add adds an entry, whose time is now.
func (a *Audit) Add(e Entry) {
	e.At = time.Now().UnixMilli()
	if a.Logger != nil {
		a.Logger.Info("audit", slog.String("what", e.What), slog.String("who", e.Who), slog.String("detail", e.Detail), slog.Bool("ok", e.OK))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.entries) == maxEntries {
		a.entries = slices.Delete(a.entries, 0, 1)
	}
	a.entries = append(a.entries, e)
}

// Entries are those that are remembered, the newest first.
func (a *Audit) Entries() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := append([]Entry{}, a.entries...)
	slices.Reverse(list)
	return list
}

func newestFirst(list []Entry) {
	slices.SortStableFunc(list, func(a, b Entry) int { return cmp.Compare(b.At, a.At) })
}
