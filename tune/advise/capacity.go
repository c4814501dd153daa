package advise

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Capacity describes what a service can sustain.
type Capacity struct {
	// Sustainable is how many requests per second the service sustains with acceptable latencies.
	Sustainable float64
	// Use is the share of Sustainable to admit, 0.6 to 0.8. Zero means DefaultUse.
	Use float64
	// Operations are the expensive operations by route, with the time that each takes. Cheap is the
	// time of any other operation.
	Operations map[string]time.Duration
	Cheap      time.Duration
}

// DefaultUse is used if Capacity.Use is zero.
const DefaultUse = 0.7

// ReadLoad reads the sustainable throughput, in requests per second, from the member
// sustainable_per_second of a JSON object. The object may have other members.
func ReadLoad(data []byte) (float64, error) {
	var found struct {
		Sustainable float64 `json:"sustainable_per_second"`
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return 0, fmt.Errorf("headgate: the file with the capacity cannot be read: %w", err)
	}
	if found.Sustainable <= 0 {
		return 0, errors.New("headgate: the file with the capacity has no sustainable_per_second above 0")
	}
	return found.Sustainable, nil
}

// Check returns an error that says what is wrong with the capacity.
func (c *Capacity) Check() error {
	if c.Use == 0 {
		c.Use = DefaultUse
	}
	var errs []error
	if !(c.Sustainable >= 1 && c.Sustainable <= 1e8) {
		errs = append(errs, fmt.Errorf("headgate: the capacity is %g requests a second, must be 1 to 100000000", c.Sustainable))
	}
	if c.Use < 0.6 || c.Use > 0.8 {
		errs = append(errs, fmt.Errorf("headgate: the part of the capacity to be used is %g, must be 0.6 to 0.8", c.Use))
	}
	for route, d := range c.Operations {
		if d <= 0 || d > time.Hour {
			errs = append(errs, fmt.Errorf("headgate: the operation %q takes %v, must be more than 0s and at most 1h", route, d))
		}
	}
	if len(c.Operations) > 0 && c.Cheap <= 0 {
		errs = append(errs, errors.New("headgate: the time of a cheap request must be given with those of expensive ones"))
	}
	return errors.Join(errs...)
}

// Rate returns the rate of the global limit, in requests per second: Sustainable × Use. Burst
// returns 2.5 times that rate, but at most what the service handles in 1.5 seconds.
func (c *Capacity) Rate() int64 { return max(1, int64(c.Sustainable*c.Use)) }

// Burst is described at [Capacity.Rate].
func (c *Capacity) Burst() int64 {
	return max(1, int64(min(2.5*float64(c.Rate()), 1.5*c.Sustainable)))
}

// Cost returns what an operation costs if a cheap request costs one unit.
func (c *Capacity) Cost(route string) int64 {
	return max(1, int64(math.Round(float64(c.Operations[route])/float64(c.Cheap))))
}

// Permits returns how many requests of an operation may be in progress, by Little's law. It assumes
// that the service does nothing but this operation.
func (c *Capacity) Permits(route string) int64 {
	each := float64(c.Rate()) / float64(c.Cost(route))
	return max(1, int64(math.Ceil(each*c.Operations[route].Seconds())))
}

// Rules returns the rule for all requests as an entry of a policy's list of rules. Comments give
// the numbers on which it is based.
func (c *Capacity) Rules() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  # The service bears %g requests a second. Of these %.0f %% are let in, and at once as\n", c.Sustainable, 100*c.Use)
	fmt.Fprintf(&b, "  # many as it takes in %.1f seconds.\n", float64(c.Burst())/c.Sustainable)
	fmt.Fprintf(&b, "  - name: everyone\n    per: all\n    limits: [%d per 1s burst %d]\n", c.Rate(), max(c.Burst(), c.dearest()))
	if len(c.Operations) == 0 {
		return b.String()
	}
	operations := slices.Sorted(maps.Keys(c.Operations))
	fmt.Fprintf(&b, "    # In units of a cheap request, which takes %v.\n    cost:\n      route:\n", c.Cheap)
	for _, route := range operations {
		fmt.Fprintf(&b, "        %s: %d # takes %v\n", strconv.Quote(route), c.Cost(route), c.Operations[route])
	}
	b.WriteString("        \"*\": 1\n")
	b.WriteString("\n# In the gateway file, so that the expensive operations leave room for the others\n# (as many as can be in progress at that rate, by Little's law):\n# concurrency:\n")
	for i, route := range operations {
		fmt.Fprintf(&b, "#   - { name: heavy-%d, match: { route: %s }, per: all, limit: %d }\n", i+1, strconv.Quote(route), c.Permits(route))
	}
	return b.String()
}

// dearest returns the highest cost of an operation. A smaller burst would always deny that
// operation.
func (c *Capacity) dearest() (most int64) {
	for route := range c.Operations {
		most = max(most, c.Cost(route))
	}
	return most
}
