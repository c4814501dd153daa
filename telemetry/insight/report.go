package insight

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Counts are checks, or requests, by what became of them.
type Counts struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// Shadow are checks that would have been denied if they were enforced; of requests,
	// those that were admitted or denied with such a check among theirs.
	Shadow int64 `json:"shadow"`
	// Uncharged are checks that their limits admit, of requests that another check denied.
	Uncharged int64 `json:"uncharged,omitempty"`
}

// Add adds others to the counts.
func (c *Counts) Add(o Counts) {
	c.Allowed += o.Allowed
	c.Denied += o.Denied
	c.Shadow += o.Shadow
	c.Uncharged += o.Uncharged
}

// checks is how many checks were counted.
func (c *Counts) checks() int64 { return c.Allowed + c.Denied + c.Shadow + c.Uncharged }

func (c counts) wide() Counts {
	return Counts{int64(c.allowed), int64(c.denied), int64(c.shadow), int64(c.uncharged)}
}

// Minute is what was counted in one minute.
type Minute struct {
	// At is when it began, in seconds since 1970.
	At int64 `json:"at"`
	Counts
}

// Overview is what was counted of all rules.
type Overview struct {
	// Now and Since, in milliseconds since 1970, are when the report was made, and when the
	// recorder was.
	Now   int64 `json:"now"`
	Since int64 `json:"since"`
	// Minutes are the requests of all doors, the last minute last. It is not over yet.
	Minutes []Minute `json:"minutes"`
	// Doors are the requests of each door within the range.
	Doors []DoorCounts `json:"doors"`
	// Rules are those with the most denials, then denials in shadow, then admitted checks,
	// within the range. All is how many were in use.
	Rules []RuleCounts `json:"rules"`
	All   int          `json:"all_rules"`
	Left  Left         `json:"left_out"`
	// Bytes is the memory of all rules.
	Bytes int64 `json:"bytes"`
}

// DoorCounts are the requests of one door.
type DoorCounts struct {
	Door string `json:"door"`
	Counts
}

// RuleCounts are the checks of one rule within a range, and in as much time before it.
type RuleCounts struct {
	Rule string `json:"rule"`
	Counts
	Before Counts `json:"before"`
	// Spark has denials, shadows among them, minute by minute for the last half hour.
	Spark []int64 `json:"spark"`
}

// sparkMinutes is how many minutes a [RuleCounts.Spark] has.
const sparkMinutes = 30

// within is the range in minutes, the current one among them.
func within(of time.Duration) int64 {
	return max(1, min(minutes, int64((of+time.Minute-1)/time.Minute)))
}

func sum(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-n+1, 0); m <= last; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// before is what there was in the n minutes before the last n, as far as it is kept.
func before(series *[minutes]counts, last, n int64) (c Counts) {
	for m := max(last-2*n+1, last-minutes+1, 0); m <= last-n; m++ {
		c.Add(series[m%minutes].wide())
	}
	return c
}

// Overview reports what was counted within the range, and the rules to look at first, at
// most so many.
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

// Memory is how many bytes all rules take, and what was left out.
func (r *Recorder) Memory() (bytes int64, left Left) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.memory.used), r.leftOut()
}
