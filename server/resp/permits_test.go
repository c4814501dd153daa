package resp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// startPermits serves permits from memory, on a clock that the test sets.
func startPermits(t *testing.T) (*client, *clock) {
	t.Helper()
	in := func(name string, limit int64) policy.Rule {
		return policy.Rule{
			Name: name, Per: []policy.Part{{Entry: "tenant"}},
			InProgress: &policy.InProgress{Limit: limit, Shared: true, TTL: 30 * time.Second, Wait: time.Minute},
		}
	}
	shadow := in("shadow", 1)
	shadow.Mode = policy.ModeShadow
	set := samplePolicy(t, in("report", 1), in("pair", 2), shadow)
	c := newClock()
	kept := memory.New(memory.Clock(c.micros.Load))
	d := over(set, kept)
	_, addr := start(t, d, Options{Permits: &decide.Permits{Rules: d.Policy, Store: kept}})
	return dial(t, addr), c
}

func TestPermits(t *testing.T) {
	c, clock := startPermits(t)
	const busy = "[allowed 0 permit nil retry_after_ms 1000 in_use 1 limit 1 line 0 waiting 0 ahead 0]"
	c.exchanges([]exchange{
		{"HG.ACQUIRE report k a", "[allowed 1 permit [epoch " + begin + " slots [0] expires_in_ms 30000 ttl_ms 30000] retry_after_ms 0 in_use 1 limit 1 line 0 waiting 0 ahead 0]"},
		{"hg.acquire report k a ttl 500", "[allowed 1 permit [epoch " + begin + " …"}, // the same again
		{"HG.ACQUIRE report k b", busy},
		{"HG.ACQUIRE report k b KEEP 1000", "[allowed 0 permit nil retry_after_ms 20 in_use 1 limit 1 line 1 waiting 1 ahead 0]"},
		{"HG.ACQUIRE report k c KEEP 1000 COST 1", "[allowed 0 permit nil retry_after_ms 40 in_use 1 limit 1 line 2 waiting 1 ahead 1]"},
		{"HG.RENEW report k a " + begin + " TTL 7000", "[epoch " + begin + " slots [0] expires_in_ms 7000 ttl_ms 7000]"},
		{"HG.RENEW report k a 5", "-NOTHELD the holder has no such permit: it has ended, or was released"},
		{"HG.RELEASE report k a 5", "0"},
		{"HG.RELEASE report k a " + begin, "1"},
		{"HG.RELEASE report k a " + begin, "0"},
		{"HG.ACQUIRE report k c", "[allowed 0 …"}, // b comes first
		{"HG.ACQUIRE report k b", "[allowed 1 …"},
		{"HG.RELEASE report k b", "1"},
		{"HG.ACQUIRE pair k a COST 2", "[allowed 1 permit [epoch " + begin + " slots [0 1] …"},
		{"HG.ACQUIRE pair k a", "-OTHERCOST the holder has a permit, …"},
		{"HG.ACQUIRE pair k b COST 3", "-ERR HG.ACQUIRE: cost: takes 3 of what may be in progress, which is 2"},
		{"HG.ACQUIRE shadow k a", "[allowed 1 permit [epoch …"},
		{"HG.ACQUIRE shadow k b", "[allowed 1 permit nil retry_after_ms 0 in_use 1 limit 1 line 0 waiting 0 ahead 0 shadow 1]"},
		{"HG.ACQUIRE none k a", "-NORULE …"},
		{"HG.ACQUIRE mail k a", "-ERR …"},
		{"HG.ACQUIRE report k _", "-ERR HG.ACQUIRE: holder: has 0 bytes, must have 1 to 128"},
		{"HG.ACQUIRE report k " + strings.Repeat("h", 129), "-ERR HG.ACQUIRE: holder: has 129 bytes, must have 1 to 128"},
		{"HG.ACQUIRE report k a TTL", "-ERR HG.ACQUIRE: there is nothing behind TTL"},
		{"HG.ACQUIRE report k a TTL 5", "-ERR HG.ACQUIRE: ttl_ms: is 5, must be 100 to 3600000, or 0 for the rule's ttl"},
		{"HG.ACQUIRE report k a KEEP 10001", "-ERR HG.ACQUIRE: the time behind KEEP is 10001, must be 0 to 10000"},
		{"HG.ACQUIRE report k a TTL 500 ttl 600", "-ERR HG.ACQUIRE: \"ttl\" is not known here, or is given twice; write HG.ACQUIRE rule key holder [COST cost] [TTL milliseconds] [KEEP milliseconds]"},
		{"HG.ACQUIRE report k a WAIT 500", "-ERR HG.ACQUIRE: \"WAIT\" is not known here, …"},
		{"HG.ACQUIRE report k a COST 0", "-ERR HG.ACQUIRE: the cost is 0, must be 1 to 1000000000"},
		{"HG.RENEW report k a x", "-ERR HG.RENEW: the epoch is not a whole number, must be 0 to 9007199254740991"},
		{"HG.RENEW report k a 0", "-ERR HG.RENEW: epoch: is 0, must be 1 to 9007199254740991, that of the permit"},
		{"HG.RENEW report k a", "-ERR wrong number of arguments for HG.RENEW: 3; write HG.RENEW rule key holder epoch [TTL milliseconds]"},
		{"HELLO 3", "{server: headgate, …"},
		{"HG.ACQUIRE report x a", "{allowed: true, permit: {epoch: " + begin + ", slots: [0], expires_in_ms: 30000, ttl_ms: 30000}, retry_after_ms: 0, in_use: 1, limit: 1, line: 0, waiting: false, ahead: 0}"},
		{"HG.RELEASE report x a", "true"},
	})
	// A lease ends by itself.
	c.exchanges([]exchange{{"HG.ACQUIRE report k d", "{allowed: true, …"}})
	clock.add(30 * time.Second)
	c.exchanges([]exchange{{"HG.ACQUIRE report k e", "{allowed: true, …"}})
}

func TestNoPermits(t *testing.T) {
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{{"HG.ACQUIRE mail k a", "-ERR the server's store keeps no permits"}})
	for _, tt := range []struct {
		err  error
		want string
	}{
		{headgate.ErrUnavailable, "-UNAVAILABLE the store did not answer in time; repeat the call with the same holder, which takes no second permit"},
		{fmt.Errorf("%w: %w: redis: a", headgate.ErrUnavailable, headgate.ErrDamaged), "-UNAVAILABLE the permits of this rule and key are damaged in the store, and none is given or renewed until an operator deletes them there"},
	} {
		d := over(samplePolicy(t, policy.Rule{Name: "report", InProgress: &policy.InProgress{Limit: 1, Shared: true}}), broken{tt.err})
		_, addr := start(t, d, Options{Permits: &decide.Permits{Rules: d.Policy, Store: brokenPermits{memory.New(), tt.err}}})
		dial(t, addr).exchanges([]exchange{{"HG.ACQUIRE report _ a", tt.want}})
	}
}

// brokenPermits are those of a store whose answer is err.
type brokenPermits struct {
	*memory.Store
	err error
}

func (p brokenPermits) Acquire(context.Context, store.PermitRequest) (store.PermitAnswer, error) {
	return store.PermitAnswer{}, p.err
}
