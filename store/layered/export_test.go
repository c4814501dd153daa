package layered

import (
	"time"

	"github.com/headgate/headgate"
)

// NewDenialsAt is NewDenials by a clock, in microseconds.
func NewDenialsAt(store headgate.Store, o DenyCacheOptions, clock func() int64) *Denials {
	d := NewDenials(store, o)
	d.table.now = func() time.Duration { return time.Duration(clock()) * time.Microsecond }
	return d
}

// KeyName is the name of a key in messages.
func KeyName(r *headgate.Rule, key string) uint64 { return keyName(r, key) }
