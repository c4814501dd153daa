package insightapi

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Audit records the last actions of people on this instance, and logs them. It is safe for
// concurrent use. The zero Audit is ready to use.
type Audit struct {
	// Logger gets each entry. Nil means no log.
	Logger *slog.Logger

	mu      sync.Mutex
	entries []Entry // in the order of time
	// failed are failed attempts to sign in. They have a list of their own, because anybody can make
	// them and could otherwise displace the real entries.
	failed []Entry
	number int64
}

// maxEntries is the maximum number of entries, and of failed attempts to sign in, that are kept.
const maxEntries = 200

// Entry is one action.
type Entry struct {
	Instance string `json:"instance"`
	// At is the time of the action, in milliseconds since 1970.
	At int64 `json:"at"`
	// Who is the address of the client that did it.
	Who string `json:"who"`
	// What is the action: "login", "logout", "reset", "revoke" or "reload".
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	// OK says that the action succeeded.
	OK bool `json:"ok"`

	number int64 // the number of the entry in this instance
}

// Add adds an entry with the current time.
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

// Entries returns the entries that are kept, the newest first.
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
