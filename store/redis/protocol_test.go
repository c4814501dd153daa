package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// FuzzReply: whatever a server answers, reading it ends in decisions for every
// limit or in an error.
func FuzzReply(f *testing.F) {
	mixed := headgate.MustRule("mixed", headgate.PerSecond(3), headgate.Sliding(5, time.Minute), headgate.Limit{
		Algorithm: headgate.SlidingCounter, Count: 9, Period: time.Minute,
	})
	checks := []headgate.Check{{Rule: mixed, Key: "a"}, {Rule: headgate.MustRule("other", headgate.PerMinute(1)), Key: "b", Shadow: true}}
	f.Add([]byte("\x01\x06\x4a\x11\x22\x33\x44\x55"))
	f.Add(make([]byte, replyHead+3*stateBytes+factsBytes))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseReply(string(text))
		if err != nil {
			return
		}
		check := func(how string, decisions []headgate.Decision, err error) {
			if err == nil && len(decisions) != 4 || err != nil && !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%s: %d decisions, %v", how, len(decisions), err)
			}
		}
		for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek} {
			decisions, err := r.taken(op, checks, nil)
			check(op.String(), decisions, err)
		}
		for _, units := range []int64{0, 1, 2} {
			decisions, err := r.settled(checks, []int64{units, units}, nil, nil)
			check("settled", decisions, err)
		}
	})
}

// FuzzAnswers: whatever a server answers to a shared call, every request gets an answer of its own
// length or an error.
func FuzzAnswers(f *testing.F) {
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.PerSecond(3)),
		headgate.MustRule("buckets", headgate.PerSecond(3), headgate.PerMinute(9)),
		headgate.MustRule("windows", headgate.Sliding(5, time.Minute)),
	}
	f.Add(append([]byte("\x06\x4a\x11\x22\x33\x44\x55\x00\x00\x10\x01"), make([]byte, stateBytes)...))
	f.Add(append(make([]byte, 7), 0, 0, 0, 0, 0, 1))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseAnswers(string(text))
		for _, rule := range rules {
			if err != nil {
				break
			}
			var r reply
			if r, err = all.next(); err != nil || r.status == statusRefused {
				continue
			}
			decisions, err := r.taken(headgate.OpTake, []headgate.Check{{Rule: rule, Key: "k"}}, nil)
			if err == nil && len(decisions) != len(rule.Limits()) || err != nil && !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%d decisions, %v", len(decisions), err)
			}
		}
		if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// TestAnswersCut: an answer that is cut off anywhere is nobody's, from where it ends.
func TestAnswersCut(t *testing.T) {
	text := "1234567" + "\x00\x00\x03\x01ab" + "\x00\x00\x00" + "\x00\x00\x01\x00"
	want := []reply{{status: statusAdmitted, text: "ab"}, {status: statusRefused}, {status: statusDenied}}
	for end := range len(text) + 1 {
		read := 0
		if all, err := parseAnswers(text[:end]); err == nil {
			for ; read < len(want); read++ {
				r, err := all.next()
				if err != nil {
					break
				}
				if r.status != want[read].status || r.text != want[read].text {
					t.Errorf("of %d bytes, answer %d: got %+v", end, read, r)
				}
			}
		}
		if whole := end == len(text); whole != (read == len(want)) {
			t.Errorf("of %d of %d bytes %d requests got an answer", end, len(text), read)
		}
	}
}

func TestMisread(t *testing.T) {
	if _, err := parseReply("short"); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a short answer: got %v", err)
	}
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Sliding(1, time.Second)), Key: "k"}}
	r := reply{status: statusAdmitted, now: 1, text: "x"}
	if _, err := r.taken(headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a cut answer: got %v", err)
	}
}

// TestRequestKeepsNothing: what a request has is its own, and the checks' owner may go on.
func TestRequestKeepsNothing(t *testing.T) {
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.PerSecond(3)),
		headgate.MustRule("buckets", headgate.PerSecond(3), headgate.PerMinute(9), headgate.PerHour(20)),
		headgate.MustRule("windows", headgate.Sliding(5, time.Minute), headgate.Sliding(9, time.Hour)),
		headgate.MustRule("mixed", headgate.PerSecond(3), headgate.Sliding(9, time.Hour)),
	}
	for _, rule := range rules {
		checks := []headgate.Check{{Rule: rule, Key: "k{1}", Cost: 2}, {Rule: rule, Key: "l", Shadow: true}}
		var q request
		q.set("hg:", modeTake, checks, 1)
		text, names := string(q.text), string(q.names)
		if want := "hg:" + rule.Name() + " k%7B1%7Dhg:" + rule.Name() + " l"; names != want || q.ends[1] != len(want) {
			t.Errorf("the counters are %q, want %q", names, want)
		}
		if work := workOf(modeTake, checks); work < 2 || work > batchWork {
			t.Errorf("%s: the work is %d", rule, work)
		}
		checks[0].Key, checks[0].Cost = "other", 7
		if string(q.text) != text || string(q.names) != names {
			t.Error("the request has changed with the check")
		}
		if n := testing.AllocsPerRun(100, func() { q.set("hg:", modeTake, checks, 1) }); n != 0 {
			t.Errorf("%s: %v allocations", rule, n)
		}
	}
}

// TestAppendKey: names are unlike for unlike counters, and only a tag stands in braces.
func TestAppendKey(t *testing.T) {
	plain := headgate.MustRule("r", headgate.PerHour(1))
	tagged, err := plain.WithTag("t")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule      *headgate.Rule
		key, want string
	}{
		{plain, "", "hg:r "},
		{plain, "k", "hg:r k"},
		{plain, " k ", "hg:r  k "},
		{plain, "{k}", "hg:r %7Bk%7D"},
		{plain, "%7Bk%7D", "hg:r %257Bk%257D"},
		{plain, "}}{{", "hg:r %7D%7D%7B%7B"},
		{plain, "50%", "hg:r 50%25"},
		{tagged, "k", "hg:r{t} k"},
		{tagged, "{x}", "hg:r{t} %7Bx%7D"},
	} {
		if got := string(appendKey(nil, "hg:", &headgate.Check{Rule: c.rule, Key: c.key})); got != c.want {
			t.Errorf("%q is %q, want %q", c.key, got, c.want)
		}
	}
}

// FuzzAppendKey: no two keys have one name, and no key steers its slot.
func FuzzAppendKey(f *testing.F) {
	f.Add("a", "b")
	f.Add("{a}", "%7Ba%7D")
	f.Add("%", "%25")
	rule := headgate.MustRule("r", headgate.PerHour(1))
	f.Fuzz(func(t *testing.T, a, b string) {
		first := string(appendKey(nil, "hg:", &headgate.Check{Rule: rule, Key: a}))
		second := string(appendKey(nil, "hg:", &headgate.Check{Rule: rule, Key: b}))
		if (a == b) != (first == second) {
			t.Errorf("%q is %q, and %q is %q", a, first, b, second)
		}
		if slotOf(first) != crc16(first)%hashSlots {
			t.Errorf("%q has a part that chooses its slot", first)
		}
	})
}

// TestSpread: the further states of a counter, which are stored behind those of all limits, are read
// behind their own, each in its place.
func TestSpread(t *testing.T) {
	state := func(c byte) string { return strings.Repeat(string(c), stateBytes) }
	free := func(n int) string { return strings.Repeat("\x00", n*stateBytes) }
	halved := "\xe1" + state('a')[1:] // the first bit says that there are high halves
	for name, c := range map[string]struct{ names, states, want string }{
		"one state":             {"\x00\x10Period", state('a'), state('a')},
		"a calendar window":     {"\x00\x34Period", state('a'), state('a')},
		"a bucket's count":      {"\x00\x10Period\x00\x11Period", state('a') + state('b'), state('a') + state('b') + free(4)},
		"a bucket's high half":  {"\x00\x20Period\x00\x26Period", state('a') + state('b'), halved + free(5) + state('b') + free(5)},
		"a counter's high half": {"\x00\x50Period\x00\x56Period", state('a') + state('b'), halved + state('b')},
		"of the second limit": {
			"\x00\x50Period\x00\x10Period\x00\x11Period", state('a') + state('b') + state('c'),
			state('a') + state('b') + state('c') + free(4),
		},
		"of two of three limits": {
			"\x00\x10Period\x01\x10Period\x00\x10period\x00\x16Period\x00\x11period",
			state('a') + state('b') + state('c') + state('d') + state('e'),
			halved + free(5) + state('d') + free(5) + state('b') + state('c') + state('e') + free(4),
		},
		"too short": {"\x00\x10Period", state('a')[1:], ""},
	} {
		value := string(rune(len(c.names)/8)) + c.names + c.states
		if got := spread(value); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
