package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
)

// reliableTTL is the shortest time to live of permits that leaves enough time to repeat a renewal
// that has failed.
const reliableTTL = time.Second

// inProgress warns of a bound on what is in progress that does not do what it seems to say.
func inProgress(r *rule, warn warnFunc) {
	p := r.InProgress
	if p == nil {
		return
	}
	fitting(r, warn)
	if p.Entry != "" && p.Limit == 0 && !demands(r, p.Entry, func(value string) bool { return p.Values[value] != 0 }) {
		warn(OpenTariff, "it does not bound what is in progress of requests with another %s than it has numbers for, nor of those without one; add \"*\" with a number for them", p.Entry)
	}
	if p.Wait > 0 && p.Queue == 0 {
		warn(NoQueue, "requests wait for up to %v, and how many may do so at once is not said, so that it is %d under each key; add queue: %d, or the number that you can bear",
			p.Wait, policy.DefaultQueue, policy.DefaultQueue)
	}
	if p.Shared && p.Term() < reliableTTL {
		warn(ShortTTL, "the store frees permits after %v, which one slow call outlasts, so that more is in progress than the limit or work is cancelled; make the ttl at least %v", p.Term(), reliableTTL)
	}
	if route := streaming(r); route != "" {
		warn(Streams, "the route %s looks like a stream, which is in progress for as long as its client likes: a few clients can hold all permits; give streams a rule of their own, by client", policy.Quote(route))
	}
}

// fitting warns of bounds that are smaller than the cost of the dearest request, as far as that
// cost is known from the rule alone.
func fitting(r *rule, warn warnFunc) {
	p := r.InProgress
	cost, who := dearest(r)
	one := func(where string, limit int64) {
		if limit != 0 && limit < cost {
			warn(NeverFits, "%s%d may be in progress but %s %d, so such a request is always refused; raise the number to %d, or lower the cost", where, limit, who, cost, cost)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(p.Values)) {
		one(fmt.Sprintf("for the %s %s, ", p.Entry, policy.Quote(v)), p.Values[v])
	}
	one("", p.Limit)
	for i := range r.Overrides {
		one(fmt.Sprintf("in override %d, ", i+1), r.Overrides[i].InProgress)
	}
}

// demands reports whether the rule matches only requests whose entry has one of the known values.
func demands(r *rule, entry string, known func(value string) bool) bool {
	unknown := func(value string) bool { return !known(value) }
	return slices.ContainsFunc(r.Match, func(c policy.Condition) bool {
		return c.Entry == entry && !c.Not && len(c.Equals) > 0 && len(c.Equals) == c.Size() && !slices.ContainsFunc(c.Equals, unknown)
	})
}

// streamWords are the last parts of paths under which servers usually stream.
var streamWords = []string{"stream", "streams", "ws", "wss", "websocket", "socket", "sse", "events", "subscribe", "watch"}

// streaming returns a route that the rule matches and that looks like a stream, or "". It returns
// "" for a rule that counts by client, because that is the right way to bound streams.
func streaming(r *rule) string {
	for i := range r.Match {
		c := &r.Match[i]
		if c.Not || c.Entry != "route" && c.Entry != "path" {
			continue
		}
		for _, value := range c.Equals {
			if last := value[strings.LastIndexByte(value, '/')+1:]; slices.Contains(streamWords, last) && !own(r) {
				return value
			}
		}
	}
	return ""
}

// own reports whether the rule counts by an entry that says who the client is.
func own(r *rule) bool {
	return slices.ContainsFunc(r.Per, func(p policy.Part) bool { return !slices.Contains(chosen, p.Entry) })
}
