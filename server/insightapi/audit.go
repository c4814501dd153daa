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
	// failed are attempts to sign in that failed. Anybody can make these, so that they must
	// not push out what people did.
	failed []Entry
	number int64
}

// maxEntries is how many entries are remembered, and as many attempts to sign in that failed.
const maxEntries = 200

// Entry is one thing that was done.
type Entry struct {
	Instance string `json:"instance"`
	// At is when, in milliseconds since 1970.
	At int64 `json:"at"`
	// Who is the address it was done from.
	Who string `json:"who"`
	// What is "login", "logout", "reset", "revoke" or "reload".
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	// OK says that it worked.
	OK bool `json:"ok"`

	number int64 // of all entries of this instance
}

// Add adds an entry, whose time is now.
func (a *Audit) Add(e Entry) {
	e.At = time.Now().UnixMilli()
	if a.Logger != nil {
		a.Logger.Info("audit", slog.String("what", e.What), slog.String("who", e.Who), slog.String("detail", e.Detail), slog.Bool("ok", e.OK))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number++
	e.number = a.number
	list := &a.entries
	if e.What == "login" && !e.OK {
		list = &a.failed
	}
	if len(*list) == maxEntries {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, e)
}

// Entries are those that are remembered, the newest first.
func (a *Audit) Entries() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := append(append([]Entry{}, a.entries...), a.failed...)
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(b.number, a.number) })
	return list
}

func newestFirst(list []Entry) {
	slices.SortStableFunc(list, func(a, b Entry) int { return cmp.Compare(b.At, a.At) })
}
