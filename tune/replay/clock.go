package replay

import (
	"sync/atomic"
	"time"
)

// Clock is the time of the log. Load policies with overrides or list entries that end at a certain
// time with policy.Clock(clock.Now). A Clock is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// Now returns the time of the request that is being decided.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

func (c *Clock) set(micros int64) { c.micros.Store(micros) }
