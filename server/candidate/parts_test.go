package candidate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// TestSketch holds the counts of a skewed stream against exact ones: none is too
// low, none too high by more than it says, and no frequent key is missing.
func TestSketch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 100_000)
	var s sketch
	exact := make(map[counter]int64)
	const total = 50_000
	for range total {
		c := counter{Denier{Rule: "r"}, fmt.Sprint(zipf.Uint64())}
		exact[c]++
		s.add(c)
	}
	top := s.top(maxPlaces)
	if len(top) != maxPlaces {
		t.Fatalf("%d places, want %d", len(top), maxPlaces)
	}
	held := make(map[counter]bool)
	for i, k := range top {
		c := counter{k.Denier, k.Key}
		held[c] = true
		if n := exact[c]; k.Count < n || k.Count-k.Over > n {
			t.Errorf("%s: %d, too high by at most %d, and really %d", k.Key, k.Count, k.Over, n)
		}
		if i > 0 && top[i-1].Count < k.Count {
			t.Error("the keys are in no order")
		}
	}
	for c, n := range exact {
		if n > total/maxPlaces && !held[c] {
			t.Errorf("%v with %d is missing", c, n)
		}
	}
}

// TestClock: the time of a request, in whatever order they come.
func TestClock(t *testing.T) {
	const hour = int64(3600e6)
	c := new(Clock)
	for i, step := range []struct{ at, want int64 }{
		{10 * hour, 10 * hour},
		{10*hour + 5, 10*hour + 5},
		{10 * hour, 10*hour + 5},   // overtaken
		{9 * hour, 9 * hour},       // set back
		{12 * hour, 12 * hour},     // and set right
		{12*hour - 1, 12 * hour},   // overtaken
		{11 * hour, 11 * hour},     // set back
		{11*hour + 1, 11*hour + 1}, //
	} {
		if c.set(step.at); c.Now() != step.want {
			t.Errorf("step %d: %d, want %d", i+1, c.Now(), step.want)
		}
	}
}

// TestCopy: a job keeps nothing of the request but copies of what is looked at.
func TestCopy(t *testing.T) {
	body := "user=anna;noise=" + strings.Repeat("x", 1000)
	d := policy.Descriptor{{Name: body[:4], Value: body[5:9]}, {Name: body[10:15], Value: body[16:]}}
	live := set(t, []policy.Rule{limits("api", 1, "user")})
	check := headgate.Check{Rule: live.Rules()[0].Limits, Key: body[5:9]}
	e := decide.Event{
		Ask:       &decide.Ask{Descriptor: d, Cost: 3, At: 4, Checks: []headgate.Check{check}, Named: []decide.Named{{Rule: body[:4], Key: body[5:9], Cost: 2}}, Terms: headgate.Terms{ID: body[:9]}},
		Decisions: []headgate.Decision{{Rule: check.Rule, Limit: &check.Rule.Limits()[0]}},
	}
	var j job
	j.copy(&e, map[string]bool{"user": true})
	if len(j.entries) != 1 || j.entries[0] != d[0] || j.cost != 3 || j.at != 4 || j.op != headgate.OpTake || j.reserve || j.terms.ID != body[:9] || j.key != "anna" || j.rule != "api" || j.admitted || len(j.named) != 1 || j.named[0] != e.Ask.Named[0] {
		t.Errorf("%+v", j)
	}
	j.texts(func(s *string) {
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(*s))), uintptr(unsafe.Pointer(unsafe.StringData(body)))
		if at >= from && at < from+uintptr(len(body)) {
			t.Errorf("%q is a part of the request", *s)
		}
	})
	if j.size() > jobBytes+64 {
		t.Errorf("the job has %d bytes", j.size())
	}
	j.reset()
	if j.text != "" || len(j.entries)+len(j.named) != 0 || j.entries[:1][0] != (policy.Entry{}) || strings.Contains(string(j.buf[:cap(j.buf)]), "anna") {
		t.Errorf("left is %+v", j)
	}
	j.copy(&e, nil)
	if len(j.entries) != 2 {
		t.Errorf("of all entries there are %d", len(j.entries))
	}
}
