package outbound

import (
	"context"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// outageName is the name of the rules by which processes tell each other that a partner rejects calls, and agree on
// who finds out whether it still does. While it rejects none, they do not ask the store for it.
const outageName = "headgate.outbound.outage"

const (
	// alike is how many rejections in a row by one endpoint are enough for all processes, and mixed is how many by
	// several: more, so that one endpoint that fails does not fail calls to the others.
	alike, mixed = 10, 2 * alike
	// remembered is how long it takes until that many are forgotten, if nobody has a call accepted.
	remembered = 100 * time.Second
	// claimedFor bounds how long one process alone finds out, and asksAgain is how often the others look whether it
	// has: all of them are to send calls within 5 s of the end.
	claimedFor, asksAgain = 4 * time.Second, 500 * time.Millisecond
	// buckets is by how many hashes endpoints are told apart. Their names may be secret, and without number.
	buckets = 64
)

var (
	alikeRule = headgate.MustRule(outageName, headgate.Limit{Count: alike, Period: remembered, Burst: alike})
	mixedRule = headgate.MustRule(outageName, headgate.Limit{Count: mixed, Period: remembered, Burst: mixed})
)

// outages returns the checks that count rejections by the call's endpoint, and by all.
func (c *call) outages() []headgate.Check {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(c.endpoint)) // It never fails.
	return []headgate.Check{
		{Rule: alikeRule, Key: strconv.Itoa(int(hash.Sum32()%buckets)) + " " + c.name},
		{Rule: mixedRule, Key: "all " + c.name},
	}
}

// claimOf returns the check by which processes claim to be the one that finds out, instead of those which count.
func claimOf(counts headgate.Check, most int64) headgate.Check {
	return headgate.Check{Rule: pauseRule(most), Key: "claim " + counts.Key, Cost: most}
}

// rejected records a rejected attempt, for all processes.
func (c *call) rejected(now time.Time) {
	closed := c.Closed(c.endpoint)
	c.Rejected(c.endpoint, now)
	if c.t.documents == nil || closed {
		return
	}
	go c.telling(func(ctx context.Context) {
		decisions, err := c.t.store.Take(ctx, headgate.OpTake, c.outages(), nil)
		if err != nil {
			c.failed(err)
			return
		}
		c.Enough(c.endpoint, time.Now(), lasted(&decisions[0]), lasted(&decisions[1]))
	})
}

// lasted returns for how long attempts have been rejected, if there were enough: the first of them is forgotten a
// known time after it was counted.
func lasted(d *headgate.Decision) time.Duration {
	if d.Allowed {
		return 0
	}
	return max(remembered/time.Duration(d.Limit.Count)-d.RetryAfter, time.Microsecond)
}

// tellAccepted tells the other processes that the partner accepts calls again.
func (c *call) tellAccepted(ctx context.Context) {
	forgotten := c.outages()
	for _, counts := range forgotten {
		forgotten = append(forgotten, claimOf(counts, pauseBurst))
	}
	if _, err := c.t.store.Take(ctx, headgate.OpReset, forgotten, nil); err != nil {
		c.failed(err)
	}
}

// claim has this call find out whether the partner still rejects all, unless that of another process does. It returns
// for how long another one has been found to.
func (c *call) claim() time.Duration {
	this, all := c.Apart(c.endpoint)
	if max(this, all) == 0 || c.t.documents == nil {
		return 0
	}
	counts := c.outages()
	check := claimOf(counts[0], min(this, claimedFor).Microseconds())
	if all > 0 {
		check = claimOf(counts[1], min(all, claimedFor).Microseconds())
	}
	ctx, cancel := context.WithTimeout(c.ctx, tellWithin)
	defer cancel()
	decisions, err := c.t.store.Take(ctx, headgate.OpTake, []headgate.Check{check}, nil)
	if err != nil || decisions[0].Allowed {
		return 0 // While the store does not answer, each process finds out for itself.
	}
	c.Postpone(c.endpoint, time.Now(), min(decisions[0].RetryAfter, asksAgain))
	return decisions[0].RetryAfter
}
