package policy

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/headgate/headgate"
)

// MaxCosts is how many values one [Costs] may have.
const MaxCosts = 10_000

// Costs says what a request costs, depending on one entry of its descriptor: by a table (Values) or
// by a measured number (Per). The result is multiplied by the cost of the request itself, like a
// rule's Cost.
type Costs struct {
	// Entry is the entry's name, such as "route" or "bytes". Required.
	Entry string
	// Values has the cost for each value, 0 to headgate.MaxCount. A rule does not bind a request
	// whose cost is 0.
	Values map[string]int64
	// Other is the cost for every other value, and for requests without the entry, 0 to
	// headgate.MaxCount. It has no meaning without Values.
	Other int64
	// Per is for entries that hold a whole number, and replaces Values: the cost is that number
	// divided by Per, rounded up. Per is 1 to headgate.MaxCount. A request without the entry, or
	// with 0, costs 1.
	Per int64
	// Max is the most that a request costs, whatever its entry says, 1 to headgate.MaxCount. Zero
	// means headgate.MaxCount. It has no meaning without Per.
	Max int64
}

func (c *Costs) clone() *Costs {
	if c == nil {
		return nil
	}
	d := *c
	d.Values = maps.Clone(c.Values)
	return &d
}

func (c *Costs) check(bad func(field, format string, args ...any)) {
	if p := checkEntryName(c.Entry); p != "" {
		bad("cost", "%s", p)
	}
	if len(c.Values) > MaxCosts {
		bad("cost", "there are %d costs, must be at most %d", len(c.Values), MaxCosts)
	}
	if c.Per == 0 && len(c.Values) == 0 {
		bad("cost", "the costs by %q have neither values nor a measure", c.Entry)
	}
	if c.Per != 0 && (len(c.Values) > 0 || c.Other != 0) || c.Per == 0 && c.Max != 0 {
		bad("cost", "the costs by %q are both a table and a measure; keep one", c.Entry)
	}
	for value, cost := range c.Values {
		if value == "" || len(value) > MaxValue {
			bad("cost", "the value %s has %d bytes, must have 1 to %d", Quote(value), len(value), MaxValue)
		}
		if cost < 0 || cost > headgate.MaxCount {
			bad("cost", "the cost of %s is %d, must be 0 to %d", Quote(value), cost, headgate.MaxCount)
		}
	}
	for _, bound := range []struct {
		name  string
		value int64
	}{{"the cost of other values", c.Other}, {"per", c.Per}, {"the largest cost", c.Max}} {
		if bound.value < 0 || bound.value > headgate.MaxCount {
			bad("cost", "%s is %d, must be at most %d and not negative", bound.name, bound.value, headgate.MaxCount)
		}
	}
}

// of is the cost of the request. If the entry is not a whole number, the text says so, and the cost
// is the highest.
func (c *Costs) of(d Descriptor) (int64, string) {
	value, ok := d.Get(c.Entry)
	if c.Per == 0 {
		if ok {
			if cost, known := c.Values[value]; known {
				return cost, ""
			}
		}
		return c.Other, ""
	}
	if !ok {
		return 1, ""
	}
	most := c.Max
	if most == 0 {
		most = headgate.MaxCount
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		for i := range len(value) {
			if value[i] < '0' || value[i] > '9' {
				return most, fmt.Sprintf("the entry %q is %s, must be a whole number: the rule's cost is measured by it", c.Entry, Quote(value))
			}
		}
		return most, "" // More than 64 bits hold.
	}
	units := n / uint64(c.Per)
	if n%uint64(c.Per) != 0 {
		units++
	}
	return int64(max(1, min(units, uint64(most)))), ""
}
