package gatewayfile

import (
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
)

// Load is how an upstream finds out how many requests may be with it at the same time, and
// what happens to those that are too many: they wait for a moment, in the order of their
// classes and in turn for tenants, or are refused.
type Load struct {
	// Initial is the limit before anything is known, Min and Max are its bounds. Zero means
	// 20, 1 and 1000.
	Initial, Min, Max int64
	// Ceiling is how long an answer may take. One that takes longer counts as overload.
	// Zero means that there is none.
	Ceiling time.Duration
	// Queue is how many requests may wait. Zero means 1000.
	Queue int
	// Wait is how long a request of a sheddable class may wait; one of a critical class may
	// wait two and a half times as long. Zero means 100ms.
	Wait time.Duration
	// Class is the entry with the class of a request, unless its route says it, and Tenant
	// the one with whom it is for. They must not be entries of [Identity.Headers], which any
	// client can write. Empty means that all requests are critical, and of one tenant.
	Class, Tenant string
	// Shadow has the limit only measure.
	Shadow bool
}

// RouteLoad is what the [Load] of the upstream is told of the requests of a route.
type RouteLoad struct {
	// Class is how much they matter. Nil means what the upstream's entry says.
	Class *flow.Class
	// Exempt has them pass without being asked about: health checks, long polls.
	Exempt bool
}

// Pressure is a signal of how short the gateway's process is of something.
type Pressure uint8

const (
	// Scheduler is how long goroutines wait for a processor.
	Scheduler Pressure = iota
	// CPU is how often the cgroup's quota of processor time stops the process.
	CPU
	// Memory is how long processes of the cgroup, or of the machine, wait for memory.
	Memory
)

// String returns the signal as it is written in gateway files.
func (p Pressure) String() string {
	return nameOf("pressure", p, "scheduler", "cpu", "memory")
}

// Concurrency bounds how many requests are in progress at the same time, an
// upgraded connection such as a WebSocket being one as long as it lasts.
type Concurrency struct {
	// Name is what answers and logs call it. Required.
	Name string
	// Match and Per are those of a [policy.Rule]: which requests, and by what they
	// are counted. Without Per there is one count for all.
	Match []policy.Condition
	Per   []policy.Part
	// Limit is how many: 1 to MaxConcurrency.
	Limit int
}
