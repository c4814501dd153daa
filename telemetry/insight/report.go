package insight

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Counts are numbers of checks, or of requests, by outcome.
type Counts struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// Shadow counts the checks that would have been denied if their limits were enforced. Of requests,
	// it counts those with such a check; they are also in Allowed or Denied.
	Shadow int64 `json:"shadow"`
	// Uncharged counts the checks that were admitted by their own limits but not charged, because
	// another check denied the request.
	Uncharged int64 `json:"uncharged,omitempty"`
}

// Add adds others to the counts.
func (c *Counts) Add(o Counts) {
	c.Allowed += o.Allowed
	c.Denied += o.Denied
	c.Shadow += o.Shadow
	c.Uncharged += o.Uncharged
}

// checks returns the number of checks that were counted.
func (c *Counts) checks() int64 { return c.Allowed + c.Denied + c.Shadow + c.Uncharged }

func (c counts) wide() Counts {
	return Counts{int64(c.allowed), int64(c.denied), int64(c.shadow), int64(c.uncharged)}
}

// Minute has the counts of one minute.
type Minute struct {
	// At is the start of the minute, in seconds since 1970.
	At int64 `json:"at"`
	Counts
}

// Overview has the counts of all rules.
type Overview struct {
	// Now is when the report was made, and Since when the recorder was. Both are in milliseconds since
	// 1970.
	Now   int64 `json:"now"`
	Since int64 `json:"since"`
	// Minutes are the requests of all doors. The last element is the current minute, which is not over
	// yet.
	Minutes []Minute `json:"minutes"`
	// Doors are the requests of each door within the range.
	Doors []DoorCounts `json:"doors"`
	// Rules are the rules with the most denials within the range, then those with the most denials in
	// shadow, then those with the most admitted checks. All is the number of rules that are known.
	Rules []RuleCounts `json:"rules"`
	All   int          `json:"all_rules"`
	Left  Left         `json:"left_out"`
	// Bytes is the memory of all rules, in bytes.
	Bytes int64 `json:"bytes"`
}

// DoorCounts has the requests of one door.
type DoorCounts struct {
	Door string `json:"door"`
	Counts
}

// RuleCounts has the checks of one rule within the range, and in the same length of time before it.
type RuleCounts struct {
	Rule string `json:"rule"`
	Counts
	Before Counts `json:"before"`
	// Spark has the denials, including those in shadow, for each minute of the last half hour.
	Spark []int64 `json:"spark"`
}

// sparkMinutes is the length of a [RuleCounts.Spark].
const sparkMinutes = 30

// within returns the number of minutes in a range, rounded up. It includes the current minute.
func within(of time.Duration) int64 {
	return max(1, min(minutes, int64((of+time.Minute-1)/time.Minute)))
}

func sum(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-n+1, 0); m <= last; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// before returns the sum of the n minutes before the last n minutes, as far as they are kept.
func before(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-2*n+1, last-minutes+1, 0); m <= last-n; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// Overview reports the counts within the range, with at most the given number of rules: those to
// look at first.
func (r *Recorder) Overview(of time.Duration, most int) Overview {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	n, last := within(of), r.minute
	o := Overview{
		Now: r.options.Now().UnixMilli(), Since: r.since.UnixMilli(), All: len(r.rules), Left: r.leftOut(),
		Bytes: int64(r.memory.used), Minutes: make([]Minute, 0, minutes), Doors: []DoorCounts{}, Rules: []RuleCounts{},
	}
	for m := last - minutes + 1; m <= last; m++ {
		at := Minute{At: m * 60}
		for i := range r.doors {
			at.Add(r.doors[i].series[m%minutes].wide())
		}
		o.Minutes = append(o.Minutes, at)
	}
	for i := range r.doors {
		if c := sum(&r.doors[i].series, last, n); c != (Counts{}) {
			o.Doors = append(o.Doors, DoorCounts{r.doors[i].name, c})
		}
	}
	for _, f := range r.rules {
		c := RuleCounts{Rule: f.name, Counts: sum(&f.series, last, n), Before: before(&f.series, last, n)}
		if c.Counts != (Counts{}) || c.Before != (Counts{}) {
			o.Rules = append(o.Rules, c)
		}
	}
	o.sort(most)
	for i := range o.Rules {
		f, c := r.rules[o.Rules[i].Rule], &o.Rules[i]
		for m := last - sparkMinutes + 1; m <= last; m++ {
			s := f.series[m%minutes]
			c.Spark = append(c.Spark, int64(s.denied)+int64(s.shadow))
		}
	}
	return o
}

func (r *Recorder) leftOut() Left {
	l := r.left
	l.Memory = r.memory.refused
	return l
}

func (o *Overview) sort(most int) {
	slices.SortFunc(o.Rules, func(a, b RuleCounts) int {
		return cmp.Or(
			cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Shadow, a.Shadow), cmp.Compare(b.Allowed, a.Allowed), strings.Compare(a.Rule, b.Rule))
	})
	o.Rules = o.Rules[:min(len(o.Rules), most)]
}

// Memory returns the memory of all rules in bytes, and what was left out.
func (r *Recorder) Memory() (bytes int64, left Left) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.memory.used), r.leftOut()
}
