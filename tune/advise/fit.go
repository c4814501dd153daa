package advise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Limit is a token bucket, with the numbers on which it is based.
type Limit struct {
	// Count units refill in Period, and Burst is the most that pass at once.
	Count  int64
	Period time.Duration
	Burst  int64

	// Route or Tier says what the limit applies to, unless it applies to all requests.
	Route, Tier string
	Requests    int64
	// People is how many clients there are that are neither Robots nor Outliers.
	People, Robots, Outliers int
	// Windows are the numbers for windows of several lengths.
	Windows []Window
	// Skipped is why there is no limit; empty if there is one.
	Skipped string
}

// Window is the most that people did in any window of a given length.
type Window struct {
	Length             time.Duration
	P50, P95, P99, Top int64
	Chosen             int64 // the number at the percentile of the options
}

// String writes the limit as a policy has it.
func (l *Limit) String() string {
	period := map[time.Duration]string{time.Second: "1s", time.Minute: "1m", time.Hour: "1h"}[l.Period]
	return fmt.Sprintf("%d per %s burst %d", l.Count, period, l.Burst)
}

// MissingError says why there is no advice: the log does not show enough.
type MissingError struct{ Missing []string }

// Error lists what is missing.
func (e *MissingError) Error() string {
	return "headgate: the log is not enough to advise from: " + strings.Join(e.Missing, "; ")
}

// Advise fits limits to what was seen. The error is a [*MissingError] if that is not
// enough.
func (b *Observer) Advise() (*Advice, error) {
	var missing []string
	span := time.Duration(b.to-b.from) * time.Microsecond
	if b.all == 0 {
		return nil, &MissingError{[]string{"it has no requests"}}
	}
	if span < MinTime {
		missing = append(missing, fmt.Sprintf("it covers %v, and must cover at least %v, so that the busiest hours are in it", span.Round(time.Minute), MinTime))
	}
	if n := b.perDay(); n < MinClients {
		missing = append(missing, fmt.Sprintf("it has %d clients a day that are no robots, and must have at least %d, so that a percentile means something", n, MinClients))
	}
	if b.nobody*2 > b.all {
		missing = append(missing, fmt.Sprintf("%d of %d requests have no %s; map the field that says who sent them", b.nobody, b.all, b.o.Per))
	}
	if missing != nil {
		return nil, &MissingError{missing}
	}
	a := &Advice{
		Per: b.o.Per, Tariff: b.o.Tariff, Percentile: b.o.Percentile, Headroom: b.o.Headroom, Requests: b.all, Limited: b.limited, PerDay: b.perDay(),
		From: time.UnixMicro(b.from).UTC(), To: time.UnixMicro(b.to).UTC(), outliers: make(map[string]bool),
	}
	groups := make([][]*usage, len(b.groups))
	names := make(map[*usage]string)
	for name, u := range b.clients.All() {
		groups[u.group] = append(groups[u.group], u)
		if u.group == 0 {
			names[u] = name[2:]
		}
	}
	for i := range groups {
		l := b.fit(groups[i])
		l.Route, l.Tier, l.Requests = b.groups[i].route, b.groups[i].tier, b.groups[i].requests
		a.Limits = append(a.Limits, l)
	}
	for u, name := range names {
		if u.outlier {
			a.outliers[strings.Clone(name)] = true
			a.outlierRequests += int64(u.requests)
		}
	}
	return a, nil
}

// perDay is how many people there are on half of the days at least.
func (b *Observer) perDay() int {
	var counts []int
	for _, n := range b.days {
		counts = append(counts, n)
	}
	if counts == nil {
		return 0
	}
	slices.Sort(counts)
	return counts[len(counts)/2]
}

// fit finds the limit for the clients of a group.
func (b *Observer) fit(all []*usage) (l Limit) {
	var people []*usage
	for _, u := range all {
		if u.robot {
			l.Robots++
		} else {
			people = append(people, u)
		}
	}
	for i := range lengths {
		markOutliers(people, i)
	}
	n := len(people)
	people = slices.DeleteFunc(people, func(u *usage) bool { return u.outlier })
	l.People, l.Outliers = len(people), n-len(people)
	if l.People < MinClients {
		l.Skipped = fmt.Sprintf("it has %d clients that are no robots, and needs at least %d", l.People, MinClients)
		return l
	}
	for i, length := range lengths {
		most := peaks(people, i)
		l.Windows = append(l.Windows, Window{length, at(most, 50), at(most, 95), at(most, 99), at(most, 100), at(most, b.o.Percentile)})
	}
	// The longest window says how fast it must go on, and the others how much more must
	// pass at once.
	last := l.Windows[len(l.Windows)-1]
	rate := b.o.Headroom * float64(last.Chosen) / last.Length.Seconds()
	for _, l.Period = range []time.Duration{time.Second, time.Minute, time.Hour} {
		if rate*l.Period.Seconds() >= 5 {
			break
		}
	}
	l.Count = max(1, int64(math.Ceil(rate*l.Period.Seconds())))
	rate = float64(l.Count) / l.Period.Seconds()
	for _, w := range l.Windows {
		l.Burst = max(l.Burst, int64(math.Ceil(b.o.Headroom*float64(w.Chosen)-rate*w.Length.Seconds())))
	}
	l.Burst = max(l.Burst, 1)
	return l
}

// peaks are the numbers of one window length, sorted.
func peaks(people []*usage, window int) []int64 {
	all := make([]int64, len(people))
	for i, u := range people {
		all[i] = int64(u.windows[window].most)
	}
	slices.Sort(all)
	return all
}

// at is a percentile of sorted numbers: the least that so many percent do not exceed.
func at(sorted []int64, percent float64) int64 {
	i := int(math.Ceil(percent/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// The gap that sets outliers apart, and from where on there may be one. Nobody is an
// outlier who did less than outlierLeast.
const (
	outlierGap   = 2
	outlierFrom  = 95.0
	outlierLeast = 20
)

// markOutliers marks those who did much more than all others in windows of one length.
func markOutliers(people []*usage, window int) {
	most := peaks(people, window)
	first := int(outlierFrom / 100 * float64(len(most)))
	for i := max(first, 1); i < len(most); i++ {
		if most[i] < outlierLeast || most[i] < outlierGap*most[i-1] {
			continue
		}
		for _, u := range people {
			u.outlier = u.outlier || int64(u.windows[window].most) >= most[i]
		}
		return
	}
}
