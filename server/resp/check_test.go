package resp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

const begin = "1763712000000000" // the clock's, in µs

func TestCheckByRule(t *testing.T) {
	c, clock := startSample(t, Options{})
	c.exchanges([]exchange{
		{"HG.CHECK mail user42", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [" +
			"[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 4 retry_after_ms 0 reset_after_ms 720000]]]"},
		{"hg.check mail user42 cost 4", "[allowed 1 …"},
		{"HG.CHECK mail user42", "[allowed 0 denied_by [rule mail limit 5 per 1h] retry_after_ms 720000 delay_ms 0 at " + begin + " decisions [" +
			"[rule mail limit 5 per 1h algorithm token_bucket allowed 0 capacity 5 period_ms 3600000 remaining 0 retry_after_ms 720000 reset_after_ms 3600000]]]"},
		{"HG.CHECK mail user42 COST 6", "[allowed 0 denied_by [rule mail limit 5 per 1h] retry_after_ms -1 …"},
		// Nothing is taken from the one if the other denies.
		{"HG.CHECK mail user42 mail user43 COST 2", "[allowed 0 denied_by [rule mail limit 5 per 1h] retry_after_ms 720000 …"},
		{"HG.PEEK mail user43", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 5 retry_after_ms 0 reset_after_ms 0]]]"},
		{"HG.PEEK mail user42", "[allowed 0 …"},
		{"HG.REFUND mail user42 COST 2 AT " + begin, "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 2 …"},
		{"HG.RESET mail user42 mail user43 COST 7", "[mail mail]"},
		{"HG.CHECK mail user42 COST 5 mail user43", "[allowed 1 …"},
		// The key of several parts or none is what the rule has.
		{"HG.CHECK login user42 COST 4", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [" +
			"[rule login limit 20 per 1m algorithm sliding_window allowed 1 capacity 20 period_ms 60000 remaining 16 retry_after_ms 0 reset_after_ms 60000] " +
			"[rule login limit 5 per 3s algorithm sliding_window allowed 1 capacity 5 period_ms 3000 remaining 1 retry_after_ms 0 reset_after_ms 3000 soft 1]]]"},
		{"HG.CHECK tried _ COST 3", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [" +
			"[rule tried limit 2 per 1m algorithm token_bucket allowed 0 capacity 2 period_ms 60000 remaining 2 retry_after_ms -1 reset_after_ms 0 shadow 1]]]"},
		{"HG.CHECK paced a", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 …"},
		{"HG.CHECK paced a", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 100 …"},
	})
	clock.add(12*time.Minute - time.Microsecond)
	c.exchanges([]exchange{{"HG.CHECK mail user42", "[allowed 0 denied_by [rule mail limit 5 per 1h] retry_after_ms 1 …"}})
	clock.add(time.Microsecond)
	c.exchanges([]exchange{{"HG.CHECK mail user42", "[allowed 1 …"}})
}

func TestCheckByDescriptor(t *testing.T) {
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{
		{"HG.CHECK DESC user user42 route POST·/login COST 5", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule login limit 20 per 1m …"},
		// The same counter as by name.
		{"HG.CHECK login user42", "[allowed 0 denied_by [rule login limit 5 per 3s] retry_after_ms 3000 …"},
		{"HG.PEEK COST 5 DESC user user43 route POST·/login", "[allowed 1 …"},
		{"HG.PEEK DESC COST 6 user user43 route POST·/login", "[allowed 0 denied_by [rule login limit 5 per 3s] retry_after_ms -1 …"},
		{"HG.CHECK DESC user user42 route POST·/login staff yes", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at 0 decisions []]"},
		{"HG.CHECK DESC route GET·/wp-admin user user42", "[allowed 0 denied_by [list scanners] retry_after_ms -1 delay_ms 0 at 0 decisions []]"},
		{"HG.RESET DESC user user42 route POST·/login", "[login]"},
		{"HG.REFUND DESC user user42 route GET·/wp-admin", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at 0 decisions []]"},
		// Names that are words.
		{"HG.PEEK DESC ENTRY id 7 ENTRY cost 3", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule words …"},
		{"HG.CHECK RULE cost k COST 10", "[allowed 1 …"},
		{"HG.CHECK mail cost RULE cost k", "[allowed 0 denied_by [rule cost limit 10 per 1m] …"},
	})
}

func TestRESP3(t *testing.T) {
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{
		{"HELLO 3", "{server: headgate, …"},
		{"HG.CHECK mail user42 COST 5", "{allowed: true, denied_by: nil, retry_after_ms: 0, delay_ms: 0, at: " + begin + ", decisions: [" +
			"{rule: mail, limit: 5 per 1h, algorithm: token_bucket, allowed: true, capacity: 5, period_ms: 3600000, remaining: 0, retry_after_ms: 0, reset_after_ms: 3600000}]}"},
		{"HG.CHECK mail user42", "{allowed: false, denied_by: {rule: mail, limit: 5 per 1h}, retry_after_ms: 720000, …"},
		{"HG.CHECK tried k COST 3", "{allowed: true, denied_by: nil, retry_after_ms: 0, delay_ms: 0, at: " + begin + ", decisions: [" +
			"{rule: tried, limit: 2 per 1m, algorithm: token_bucket, allowed: false, capacity: 2, period_ms: 60000, remaining: 2, retry_after_ms: -1, reset_after_ms: 0, shadow: true}]}"},
		{"HG.PEEK DESC route GET·/wp-admin", "{allowed: false, denied_by: {list: scanners}, retry_after_ms: -1, delay_ms: 0, at: 0, decisions: []}"},
		{"HG.RULES", "{version: 1, hash: 5ec2e7, rules: [" +
			"{name: mail, direct: true, match: [], per: [], cost: 1, limits: [{limit: 5 per 1h, algorithm: token_bucket, capacity: 5, period_ms: 3600000}], soft: 0, mode: enforce, enforce: 100} " +
			"{name: login, direct: false, match: [{entry: route, not: false, values: 1} {entry: staff, not: true, values: 0}], per: [user], cost: 1, limits: [" +
			"{limit: 20 per 1m, algorithm: sliding_window, capacity: 20, period_ms: 60000} {limit: 5 per 3s, algorithm: sliding_window, capacity: 5, period_ms: 3000}], soft: 80, mode: enforce, enforce: 100} …"},
		{"HELLO 2", "[server headgate …"},
		{"HG.RULES", "[version 1 hash 5ec2e7 rules [[name mail direct 1 match [] per [] cost 1 limits [[limit 5 per 1h algorithm token_bucket capacity 5 period_ms 3600000]] soft 0 mode enforce enforce 100] …"},
	})
}

func TestMistakes(t *testing.T) {
	c, _ := startSample(t, Options{})
	long := strings.Repeat("k", headgate.MaxKey+1)
	const bounds = ", must be 1 to 9007199254740991"
	for _, e := range []exchange{
		{"HG.CHECK mail", "-ERR wrong number of arguments for HG.CHECK: 1; write HG.CHECK rule key [COST cost] [rule key [COST cost] ...] | DESC name value [name value ...] [COST cost] [ID id] [FOR milliseconds]"},
		{"HG.CHECK mail a mail", `-ERR HG.CHECK: there is a rule without a key; a rule with one counter for all has the key ""`},
		{"HG.CHECK ID a", "-ERR HG.CHECK: there is neither a rule with its key, nor DESC with names and values"},
		{"HG.CHECK nobody user42", `-NORULE there is no rule "nobody"; there are mail, login, cost, tried, paced and 2 more; HG.RULES lists them`},
		{"HG.CHECK mail a COST 0", "-ERR HG.CHECK: the cost is 0" + bounds},
		{"HG.CHECK mail a COST -1", "-ERR HG.CHECK: the cost is -1" + bounds},
		{"HG.CHECK mail a COST 9007199254740992", "-ERR HG.CHECK: the cost is 9007199254740992" + bounds},
		{"HG.CHECK mail a COST 99999999999999999999999999999", "-ERR HG.CHECK: the cost is 999999999999999999999999..." + bounds},
		{"HG.CHECK mail a COST 1.5", "-ERR HG.CHECK: the cost is not a whole number" + bounds},
		{"HG.CHECK mail a COST 1 COST 1", "-ERR HG.CHECK: COST is given twice"},
		{"HG.CHECK COST 1 mail a", "-ERR HG.CHECK: COST stands behind the rule and the key that it is the cost of"},
		{"HG.CHECK mail a COST", "-ERR HG.CHECK: COST needs a value; before a name that is such a word, write RULE or ENTRY"},
		{"HG.CHECK mail a DESC b c", "-ERR HG.CHECK: DESC comes once, and not with rules; before a rule of that name, write RULE"},
		{"HG.CHECK DESC b c DESC d e", "-ERR HG.CHECK: DESC comes once…"},
		{"HG.CHECK DESC b", "-ERR HG.CHECK: an entry of the descriptor has a name and no value"},
		{"HG.CHECK DESC COST 2", "-ERR HG.CHECK: DESC needs names and values behind it"},
		{"HG.CHECK DESC b c COST 2 COST 2", "-ERR HG.CHECK: COST is given twice"},
		{"HG.CHECK DESC b c b d", `-ERR HG.CHECK: the entry "b" is given twice`},
		{"HG.CHECK DESC _ c", "-ERR HG.CHECK: descriptor: the name has 0 bytes, must have 1 to 64"},
		{"HG.CHECK DESC user " + strings.Repeat("v", policy.MaxValue+1), "-ERR HG.CHECK: descriptor.user: has 8193 bytes, may have 8192"},
		{"HG.CHECK DESC" + strings.Repeat(" a b", 1) + strings.Repeat(" x y", 40), `-ERR HG.CHECK: the entry "x" is given twice`},
		{"HG.CHECK DESC" + numbered(" a%d b", policy.MaxEntries+1), "-ERR HG.CHECK: descriptor: has 33 entries, may have 32"},
		{"HG.CHECK" + numbered(" mail k%d", headgate.MaxChecks+1), "-ERR HG.CHECK: checks: has 65 checks, must have 1 to 64"},
		{"HG.CHECK mail " + long, "-ERR HG.CHECK: checks[0].key: the key has 1025 bytes, must have at most 1024"},
		{"HG.CHECK mail " + long + " words _", `-ERR HG.CHECK: checks[0].key: the key has 1025 bytes, must have at most 1024; checks[1].key: the key has 0 bytes, but the rule binds no request without id`},
		{"HG.CHECK mail a mail a", `-ERR HG.CHECK: checks: check 2 repeats the rule "mail" and the key of check 1; add up their costs instead`},
		{"HG.CHECK mail a ID _", "-ERR HG.CHECK: id: has 0 bytes, must have 1 to 256"},
		{"HG.CHECK mail a ID " + strings.Repeat("i", headgate.MaxID+1), "-ERR HG.CHECK: id: has 257 bytes, must have 1 to 256"},
		{"HG.CHECK mail a ID b ID c", "-ERR HG.CHECK: ID is given twice"},
		{"HG.CHECK mail a FOR 1000", "-ERR HG.CHECK: FOR says how long an ID is remembered, and there is no ID"},
		{"HG.CHECK mail a ID b FOR 86400001", "-ERR HG.CHECK: the time behind FOR is 86400001, must be 1 to 86400000 milliseconds"},
		{"HG.CHECK mail a ID b FOR 1 FOR 1", "-ERR HG.CHECK: FOR is given twice"},
		{"HG.CHECK mail a AT 5", "-ERR HG.CHECK: AT is for HG.REFUND"},
		{"HG.REFUND mail a AT 0", "-ERR HG.REFUND: the time behind AT is 0, must be 1 to 9007199254740992: microseconds since 1970, as the answer to the check has them"},
		{"HG.REFUND mail a AT 1 AT 1", "-ERR HG.REFUND: AT is given twice"},
		{"HG.PEEK mail a ID b", "-ERR HG.PEEK: ID is for HG.CHECK and HG.RESERVE"},
		{"HG.PEEK mail a FOR 5", "-ERR HG.PEEK: FOR is for HG.CHECK and HG.RESERVE"},
		{"HG.SETTLE a", "-ERR wrong number of arguments for HG.SETTLE: 1; write HG.SETTLE id [COST cost] [STATUS status]"},
		{"HG.SETTLE a COST -1", "-ERR HG.SETTLE: the cost is -1, must be 0 to 9007199254740991"},
		{"HG.SETTLE a COST x", "-ERR HG.SETTLE: the cost is not a whole number, must be 0 to 9007199254740991"},
		{"HG.SETTLE a STATUS 99", "-ERR HG.SETTLE: the status is 99, must be 100 to 599"},
		{"HG.SETTLE a 5 6", `-ERR HG.SETTLE: "5" is neither COST nor STATUS, or is given twice`},
		{"HG.SETTLE a COST 1 COST 1", `-ERR HG.SETTLE: "COST" is neither COST nor STATUS, or is given twice`},
		{"HG.SETTLE a COST 1 STATUS", `-ERR HG.SETTLE: there is nothing behind "STATUS"`},
		{"HG.SETTLE _ COST 1", "-ERR HG.SETTLE: reservation: is missing; send the id that the answer to the reservation gave"},
		{"HG.CANCEL " + strings.Repeat("i", 513), "-ERR HG.CANCEL: reservation: has 513 bytes, which no id of a reservation has"},
		{"HG.RULES now", "-ERR wrong number of arguments for HG.RULES: 1; write HG.RULES"},
		{"HG.CHEQUE mail a", `-ERR unknown command "HG.CHEQUE"; COMMAND LIST has those that there are`},
		{strings.Repeat("X", 100), `-ERR unknown command "` + strings.Repeat("X", 64) + `"...; COMMAND LIST has those that there are`},
	} {
		c.exchanges([]exchange{e})
	}
	c.write(wire("HG.CHECK", "mail\r\n+OK", "a"))
	if got := c.answer(); got != `-NORULE there is no rule "mail\r\n+OK"; there are mail, login, cost, tried, paced and 2 more; HG.RULES lists them` {
		t.Errorf("a name with an end of line is answered with %q", got)
	}
	// None of these has taken anything.
	c.exchanges([]exchange{{"HG.PEEK mail a", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 5 …"}})
}

// numbered repeats a format n times, with a number each.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestIdempotence(t *testing.T) {
	c, clock := startSample(t, Options{})
	first := c.do("HG.CHECK mail user42 COST 2 ID req-1 FOR 5000")
	c.exchanges([]exchange{
		{"HG.CHECK ID req-1 mail user42 COST 2", first},
		{"HG.CHECK mail user42 COST 3 ID req-1", "-CONFLICT the id is that of another request; give each its own"},
		{"HG.PEEK mail user42", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 3 …"},
	})
	clock.add(5 * time.Second)
	if got := c.do("HG.CHECK mail user42 COST 2 ID req-1"); got == first || !strings.HasPrefix(got, "[allowed 1 ") {
		t.Errorf("after the id was forgotten: %s", got)
	}
}

func TestReservations(t *testing.T) {
	c, clock := startSample(t, Options{})
	const remains = "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining "
	c.exchanges([]exchange{
		{"HG.RESERVE mail user42 COST 4 ID r1 FOR 60000", remains + "1 retry_after_ms 0 reset_after_ms 2880000]] reservation r1 expires_in_ms 60000]"},
		{"HG.RESERVE mail user42 COST 2", "[allowed 0 denied_by [rule mail limit 5 per 1h] retry_after_ms 720000 delay_ms 0 at " + begin + " decisions [[rule mail limit 5 per 1h algorithm token_bucket allowed 0 capacity 5 period_ms 3600000 remaining 1 retry_after_ms 720000 reset_after_ms 2880000]] reservation nil expires_in_ms 0]"},
		{"HG.SETTLE r1 COST 1", remains + "4 retry_after_ms 0 reset_after_ms 720000]]]"},
		{"hg.settle r1 cost 1", remains + "4 …"},
		{"HG.SETTLE r1 COST 2", "-CONFLICT the reservation is settled already, at other units than [2]"},
		{"HG.SETTLE nobody COST 2", "-NORESERVATION there is no such reservation: it has expired, or there never was one; nothing was changed"},
		{"HG.RESERVE mail a COST 2 mail b COST 3 ID r2", "[allowed 1 …"},
		{"HG.SETTLE r2 COST 5", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [" +
			"[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 0 retry_after_ms 0 reset_after_ms 3600000] " +
			"[rule mail limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 0 retry_after_ms 0 reset_after_ms 3600000]]]"},
		// A rule that charges for failures only, and says how long a reservation lasts.
		{"HG.RESERVE tries u COST 2 ID r4", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule tries limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 3 retry_after_ms 0 reset_after_ms 1440000]] reservation r4 expires_in_ms 5000]"},
		{"HG.SETTLE r4 STATUS 200", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule tries limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 5 …"},
		{"HG.RESERVE tries u COST 2 ID r5", "[allowed 1 …"},
		{"HG.SETTLE r5 STATUS 401 COST 3", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at " + begin + " decisions [[rule tries limit 5 per 1h algorithm token_bucket allowed 1 capacity 5 period_ms 3600000 remaining 2 …"},
		{"HG.RESERVE DESC user u route POST·/login COST 3 ID r3", "[allowed 1 …"},
		{"HG.CANCEL r3", "[allowed 1 …"},
		{"HG.CHECK login u COST 5", "[allowed 1 …"},
		{"HG.RESERVE DESC user u", "[allowed 1 denied_by nil retry_after_ms 0 delay_ms 0 at 0 decisions [] reservation nil expires_in_ms 0]"},
		{"HG.RESERVE DESC route GET·/wp-a", "[allowed 0 denied_by [list scanners] retry_after_ms -1 delay_ms 0 at 0 decisions [] reservation nil expires_in_ms 0]"},
		{"HG.RESERVE mail c", "[allowed 1 …"},
		{"HELLO 3", "{server: …"},
		{"HG.CANCEL r3", "{allowed: true, …"},
	})
	clock.add(61 * time.Second)
	c.exchanges([]exchange{{"HG.CANCEL r1", "-NORESERVATION …"}})
}

// The answer to one command says nothing of those before it, though they share
// memory: it is the same over a connection of its own.
func TestAnswersAreApart(t *testing.T) {
	commands := []string{
		"HG.RESERVE mail a ID r", "HG.SETTLE r COST 1", "HG.CHECK DESC route GET·/wp-x", "HG.CANCEL x", "HG.PEEK mail a", "HG.RESET mail b",
		"HG.CHECK nobody x", "HG.PEEK DESC a b", "HG.REFUND mail b AT 5", "HG.PEEK login b", "CL.THROTTLE a 1 1 1 0", "HG.PEEK mail b",
		"HG.RESERVE mail a COST 9", "HG.SETTLE r COST 1", "HG.CHECK tried x", "HG.REFUND DESC route GET·/wp-x",
	}
	for _, sideBySide := range []bool{false, true} {
		options := Options{SideBySide: sideBySide}
		clock := newClock()
		_, addr := start(t, over(samplePolicy(t), memory.New(memory.Clock(clock.micros.Load))), options)
		together, _ := startSample(t, options)
		var all strings.Builder
		for _, line := range commands {
			all.WriteString(wireLine(line))
		}
		together.write(all.String())
		for _, line := range commands {
			want := dial(t, addr).do(line)
			if got := together.answer(); got != want {
				t.Errorf("side by side %v: %s\nis answered with %s\nalone with %s", sideBySide, line, got, want)
			}
		}
	}
}

func TestStoreFailure(t *testing.T) {
	unavailable := fmt.Errorf("%w: dial tcp 10.0.0.1:6379", headgate.ErrUnavailable)
	_, addr := start(t, over(samplePolicy(t), broken{unavailable}), Options{})
	c := dial(t, addr)
	const said = "-UNAVAILABLE the store did not answer in time; whether the request was charged is not known"
	c.exchanges([]exchange{
		{"HG.CHECK mail a", said},
		{"HG.RESET mail a", said},
		{"CL.THROTTLE a 1 1 1", said},
		{"HG.CHECK mail a ID b", "-ERR the store does not remember requests by an id"},
		{"HG.RESERVE mail a", "-ERR the store does not remember requests by an id"},
		{"HG.SETTLE a COST 1", "-ERR the store does not remember requests by an id"},
		// No rule binds it, so that no store is asked.
		{"HG.CHECK DESC a b", "[allowed 1 …"},
		{"PING", "+PONG"},
	})
}

// A store that says nothing has not allowed anything.
func TestNoDecision(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), broken{nil}), Options{})
	for _, line := range []string{"HG.CHECK mail a", "HG.PEEK mail a", "CL.THROTTLE a 1 1 1"} {
		dial(t, addr).exchanges([]exchange{{line, "-UNAVAILABLE the store did not answer in time; whether the request was charged is not known"}})
	}
}
