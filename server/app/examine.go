package app

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/redis/doctor"
)

// Examination is what [Examine] has found out about a store.
type Examination struct {
	Store string `json:"store"`
	doctor.Diagnosis
}

// Bad reports whether one of the findings is bad.
func (e *Examination) Bad() bool { return e.Worst() == doctor.Bad }

// examineTimeout is the deadline of each call of an examination. It is long, because the
// examination must report on a slow store, not fail.
const examineTimeout = 5 * time.Second

// Examine checks a store for operational problems; see [redis.Store.Diagnose]. The
// error is a [*SettingsError] or wraps [ErrUnavailable].
func Examine(ctx context.Context, url string) (*Examination, error) {
	switch {
	case url == memoryStore:
		return nil, &SettingsError{[]string{"--store: the memory store is in the server's process, and there is nothing to look at from here"}}
	case !strings.HasPrefix(url, "redis") && backendOf(url) != nil:
		return nil, &SettingsError{[]string{"--store: only Redis and Valkey can be examined"}}
	}
	store, err := OpenStore(ctx, Settings{Store: url, StoreTimeout: examineTimeout})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	d, err := store.Store.(*redis.Store).Diagnose(ctx)
	if err != nil {
		return nil, &unavailable{"the store " + store.Name() + " does not answer", err}
	}
	return &Examination{store.Name(), *d}, nil
}
