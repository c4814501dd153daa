package outbound

import (
	"context"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow/retry"
)

// outageName is the name of the rules by which processes tell each other that a partner rejects calls, and agree on
// who finds out whether it still does. While it rejects none, they do not ask the store for it.
const outageName = "headgate.outbound.outage"

const (
	// forgets is how long it takes until one rejection is forgotten, if nobody has a call accepted, and kept is how many
	// are counted: twice as many as a process counts, so that there is room for what it tells.
	forgets, kept = 10 * time.Second, 80
	// claimedFor bounds how long one process alone finds out, and asksAgain is how often the others look whether it
	// has: all of them are to send calls within 5 s of the end.
	claimedFor, asksAgain = 4 * time.Second, 500 * time.Millisecond
	// buckets is by how many hashes endpoints are told apart. Their names may be secret, and without number.
	buckets = 64
)

var outageRule = headgate.MustRule(outageName, headgate.Limit{Count: 1, Period: forgets, Burst: kept})

// outages returns the checks that count what was rejected in a row by the call's endpoint, and by several. Each counts
// though the other one has no room: they are in shadow.
func (c *call) outages() (checks [2]headgate.Check) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(c.endpoint)) // It never fails.
	for i, of := range [...]string{strconv.Itoa(int(hash.Sum32() % buckets)), "all"} {
		checks[i] = headgate.Check{Rule: outageRule, Key: of + " " + c.name, Shadow: true}
	}
	return checks
}

// claimOf returns the check by which processes claim to be the one that finds out, instead of those which count.
func claimOf(counts headgate.Check, most int64) headgate.Check {
	return headgate.Check{Rule: pauseRule(most), Key: "claim " + counts.Key, Cost: most}
}

// rejected records a rejected attempt, for all processes.
func (c *call) rejected(now time.Time) {
	c.Rejected(c.endpoint, now)
	if c.t.documents == nil {
		return
	}
	this, all := c.Tell(c.endpoint, now)
	if this == 0 {
		return
	}
	go c.telling(func(ctx context.Context) {
		counts := c.outages()
		counts[0].Cost, counts[1].Cost = int64(this), int64(all)
		checks := counts[:]
		if all == 0 {
			checks = counts[:1]
		}
		decisions, err := c.t.store.Take(ctx, headgate.OpTake, checks, nil)
		if err != nil {
			c.failed(err)
			return
		}
		var rows [len(counts)]retry.Row
		for i := range decisions {
			rows[i] = row(&decisions[i])
		}
		c.Hear(c.endpoint, time.Now(), rows[0], rows[1])
	})
}

// row returns how many attempts were rejected in a row, and since when: the first of them is the next one to be forgotten.
func row(d *headgate.Decision) retry.Row {
	n := (d.ResetAfter + forgets - 1) / forgets
	return retry.Row{Count: int(n), Lasted: n*forgets - d.ResetAfter}
}

// tellAccepted tells the other processes that the partner accepts calls again.
func (c *call) tellAccepted(ctx context.Context) {
	counts := c.outages()
	forgotten := counts[:]
	for _, of := range counts {
		forgotten = append(forgotten, claimOf(of, pauseBurst))
	}
	if _, err := c.t.store.Take(ctx, headgate.OpReset, forgotten, nil); err != nil {
		c.failed(err)
	}
}

// claim has this call find out whether the partner still rejects all, unless that of another process does. It returns
// for how long another one has been found to.
func (c *call) claim() time.Duration {
	if c.t.documents == nil {
		return 0
	}
	alone, all, rejected := c.Probe(c.endpoint)
	if alone == 0 {
		return 0
	}
	counts := c.outages()
	count := counts[0]
	if all {
		count = counts[1]
	}
	count.Cost = int64(rejected)
	ctx, cancel := context.WithTimeout(c.ctx, tellWithin)
	defer cancel()
	checks := []headgate.Check{claimOf(count, min(alone, claimedFor).Microseconds()), count}
	decisions, err := c.t.store.Take(ctx, headgate.OpTake, checks, nil)
	if err != nil || decisions[0].Allowed {
		return 0 // While the store does not answer, each process finds out for itself.
	}
	wait := decisions[0].RetryAfter
	if !c.Postpone(c.endpoint, time.Now(), min(wait, asksAgain), row(&decisions[1]).Count) {
		return 0
	}
	return wait
}
