package replay

import (
	"sync/atomic"
	"time"
)

// Clock is the time of the log. Policies whose overrides or lists end at some time are to
// be loaded with policy.Clock(clock.Now). It is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// Now is the time of the request that is being decided.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

func (c *Clock) set(micros int64) { c.micros.Store(micros) }
