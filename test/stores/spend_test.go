package stores

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestExcess: as many units too many are found as there are for certain.
func TestExcess(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// span is of units whose calls took so long, one after another in milliseconds.
	spans := func(units int, from, every, took int) (all []Span) {
		for i := range units {
			began := start.Add(time.Duration(from+i*every) * time.Millisecond)
			all = append(all, Span{began, began.Add(time.Duration(took) * time.Millisecond)})
		}
		return all
	}
	bucket := headgate.MustRule("r", headgate.Per(10, time.Second)).Limits()[0]
	sliding := headgate.MustRule("r", headgate.Sliding(10, time.Second)).Limits()[0]
	fixed := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Second}).Limits()[0]
	for _, c := range []struct {
		name  string
		limit headgate.Limit
		spans []Span
		want  int64
	}{
		{"nothing", sliding, nil, 0},
		{"a full bucket", bucket, spans(10, 0, 0, 1), 0},
		{"a full bucket and three more", bucket, spans(13, 0, 0, 1), 3},
		{"a bucket and what it refills", bucket, append(spans(10, 0, 0, 0), spans(10, 100, 100, 0)...), 0},
		{"a bucket and twice what it refills", bucket, append(spans(10, 0, 0, 0), spans(20, 50, 50, 0)...), 10},
		{"a window at both ends", sliding, append(spans(10, 0, 0, 0), spans(10, 1000, 0, 0)...), 0},
		{"a window that ends too early", sliding, append(spans(10, 0, 0, 0), spans(10, 999, 0, 0)...), 10},
		{"calls that took long", sliding, append(spans(10, 0, 0, 0), spans(10, 999, 0, 1)...), 0},
		{"two fixed windows", fixed, append(spans(10, 900, 0, 0), spans(10, 1000, 0, 0)...), 0},
		{"one fixed window", fixed, append(spans(10, 900, 0, 0), spans(4, 950, 0, 0)...), 4},
		{"a call over the end of a window", fixed, append(spans(10, 900, 0, 0), spans(4, 950, 0, 100)...), 0},
	} {
		if got := Excess(&c.limit, c.spans); got != c.want {
			t.Errorf("%s: %d units too many, want %d", c.name, got, c.want)
		}
	}
}
