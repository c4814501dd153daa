package resp

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// The answers are those of redis-cell at the same times.
func TestThrottle(t *testing.T) {
	c, clock := startSample(t, Options{})
	began := time.Duration(0)
	for _, tt := range []struct {
		at   time.Duration
		send string
		want string
	}{
		{0, "6", "[1 5 5 -1 0]"}, // It can never fit.
		{0, "", "[0 5 4 -1 1]"},
		{0, "1", "[0 5 3 -1 2]"},
		{0, "", "[0 5 2 -1 3]"},
		{0, "", "[0 5 1 -1 4]"},
		{0, "", "[0 5 0 -1 5]"},
		{0, "", "[1 5 0 1 5]"},
		{0, "0", "[0 5 0 -1 5]"},
		{1, "", "[1 5 0 1 5]"}, // A microsecond: seconds are rounded up.
		{3 * time.Second, "", "[0 5 2 -1 3]"},
		{3100 * time.Millisecond, "", "[0 5 1 -1 4]"},
		{4 * time.Second, "", "[0 5 1 -1 4]"},
		{8 * time.Second, "", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, "", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, "0", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, "2", "[0 5 2 -1 3]"},
		{9500 * time.Millisecond, "5", "[1 5 2 3 3]"},
		{time.Hour, "0", "[0 5 5 -1 0]"},
	} {
		at := tt.at
		if at == 1 {
			at = time.Microsecond
		}
		clock.add(at - began)
		began = at
		if got := c.do("CL.THROTTLE k 4 1 1 " + tt.send); got != tt.want {
			t.Errorf("after %v, quantity %q: %s, want %s", at, tt.send, got, tt.want)
		}
	}
}

// The numbers may change while a key is in use: what was used stays used. Another
// period is another counter.
func TestThrottleChanges(t *testing.T) {
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{
		{"CL.THROTTLE k 9 60 60 6", "[0 10 4 -1 6]"},
		{"CL.THROTTLE k 19 60 60 0", "[0 20 14 -1 6]"},
		{"CL.THROTTLE k 4 60 60", "[1 5 0 2 6]"},
		{"CL.THROTTLE k 9 120 60 0", "[0 10 4 -1 3]"},
		{"CL.THROTTLE k 9 60 61 0", "[0 10 10 -1 0]"},
		{"CL.THROTTLE k2 9 60 60 0", "[0 10 10 -1 0]"},
		{"CL.THROTTLE _ 0 1 31622400", "[0 1 0 -1 31622400]"},
		{"HELLO 3", "{server…"},
		{"CL.THROTTLE k 9 60 60 0", "[0 10 4 -1 6]"},
	})
}

func TestThrottleMistakes(t *testing.T) {
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{
		{"CL.THROTTLE k 15 30", "-ERR wrong number of arguments for CL.THROTTLE: 3; write CL.THROTTLE key max_burst count period [quantity]"},
		{"CL.THROTTLE k 15 30 60 1 1", "-ERR wrong number of arguments for CL.THROTTLE: 6; …"},
		{"CL.THROTTLE k -1 30 60", "-ERR CL.THROTTLE: max_burst is -1, must be 0 to 9007199254740990"},
		{"CL.THROTTLE k 15 0 60", "-ERR CL.THROTTLE: count is 0, must be 1 to 9007199254740991"},
		{"CL.THROTTLE k 15 30 0", "-ERR CL.THROTTLE: period is 0, must be 1 to 31622400"},
		{"CL.THROTTLE k 15 30 60 -1", "-ERR CL.THROTTLE: quantity is -1, must be 0 to 9007199254740991"},
		{"CL.THROTTLE k 15 30 1.5", "-ERR CL.THROTTLE: period is not a whole number, must be 1 to 31622400"},
		{"CL.THROTTLE k 999999999 1 31622400", "-ERR CL.THROTTLE: limit 1: burst 1000000000 at 1 per 8784h0m0s takes longer than 100 years to refill"},
	})
	clash := samplePolicy(t, policy.Rule{Limits: headgate.MustRule(ThrottleRule, headgate.PerSecond(1)), Direct: true})
	_, addr := start(t, over(clash, memory.New()), Options{})
	dial(t, addr).exchanges([]exchange{{"CL.THROTTLE k 15 30 60", "-ERR CL.THROTTLE: the policy has a rule named cl.throttle, which is the name that CL.THROTTLE counts under"}})
}

// However many limits are asked for, no more than a bound of them are remembered,
// and those that are forgotten lose nothing.
func TestThrottlesAreBounded(t *testing.T) {
	var all throttles
	first, err := all.rule(throttle{1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := all.rule(throttle{1, 1, 1}); again != first {
		t.Error("a rule that is known was compiled again")
	}
	for i := range int64(3 * maxThrottles) {
		if _, err := all.rule(throttle{i, 1, 60}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(all.known); n != maxThrottles {
		t.Errorf("%d rules are known, want %d", n, maxThrottles)
	}
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{{"CL.THROTTLE k 9 60 60 6", "[0 10 4 -1 6]"}})
	for i := range maxThrottles + 1 {
		c.do(fmt.Sprintf("CL.THROTTLE other %d 1 60", i))
	}
	c.exchanges([]exchange{{"CL.THROTTLE k 9 60 60", "[0 10 3 -1 7]"}})
}
