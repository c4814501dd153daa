package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/sleep"
)

// Search says how to look for the sustainable throughput.
type Search struct {
	// From is the first rate to try, in requests per second, and To the highest.
	From, To float64
	// Step is how long each rate is tried.
	Step time.Duration
	// Rest is the pause between two rates.
	Rest time.Duration
	// Precision is the largest relative distance between the rate that is found and a rate that is
	// not sustained.
	Precision float64
	// Expect is what must hold. In addition, the median latency must not rise so fast that it would
	// exceed the bound on the latency within a minute.
	Expect []Expectation
	// Progress is called after each step. It may be nil.
	Progress func(*Measurement, []string)
}

// Found is the result of a search.
type Found struct {
	// Sustainable is the highest rate, in requests per second, that was sustained. It was tried
	// twice, unless it is the highest of the search. It is zero if there is none.
	Sustainable float64 `json:"sustainable_per_second"`
	// Refused is the lowest rate that was not sustained, and Because says why. It is zero if the
	// highest rate was sustained, or if the sender could not send more.
	Refused float64 `json:"not_sustainable_per_second"`
	// Late is the lowest rate at which the sender was late each time, so that it is not known
	// whether the rate can be sustained. It is zero if there is none.
	Late    float64  `json:"sender_late_per_second,omitempty"`
	Because []string `json:"because"`
	// Steps are the rates that were tried, in order.
	Steps []*Measurement `json:"steps"`
}

// ErrSender is the error of a sender that cannot send as fast as it should.
var ErrSender = errors.New("headgate: the sender is too slow")

const (
	// A rate that is not sustained while the sender is late is tried up to tries times.
	tries = 3
	// maxSteps bounds a search.
	maxSteps = 100
	// The median latency must not rise to its bound within soon.
	soon = time.Minute
	// fewest is the minimum number of requests with which a rate is tried.
	fewest = 10
)

// Check returns an error that says what is wrong with the search.
func (s *Search) Check() error {
	var errs []error
	if !(s.From >= MinRate && s.From <= s.To && s.To <= MaxRate) {
		errs = append(errs, fmt.Errorf("headgate: the search goes from %g to %g requests a second, must be within %g to %d and rise", s.From, s.To, MinRate, MaxRate))
	}
	if !(s.Precision >= 0.001 && s.Precision <= 0.5) {
		errs = append(errs, fmt.Errorf("headgate: the precision is %g %%, must be 0.1 %% to 50 %%", 100*s.Precision))
	}
	if s.Step < time.Second || s.Step > time.Hour {
		errs = append(errs, fmt.Errorf("headgate: each rate is tried for %v, must be 1s to 1h", s.Step))
	}
	bounded := false
	for _, e := range s.Expect {
		bounded = bounded || e.Latency()
	}
	if !bounded {
		errs = append(errs, errors.New("headgate: a search needs a bound on the latency, such as p95<200ms"))
	}
	return errors.Join(errs...)
}

// Search looks for the highest rate that a service sustains. It doubles the rate until the service
// does not sustain it. Then it repeatedly halves the distance between the highest rate that was
// sustained and the lowest that was not, and tries the result once more. When the context ends, the
// error is the context's. If the sender is late in all tries of a rate that is not sustained,
// Search goes on with lower rates and returns [ErrSender]: the service may sustain more than was
// found. The result so far is returned in any case.
func (c *Client) Search(ctx context.Context, s Search) (*Found, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	f := new(Found)
	err := f.look(ctx, &s, func(ctx context.Context, rate float64) (*Measurement, error) {
		if len(f.Steps) > 0 {
			if !sleep.For(ctx, s.Rest) {
				return nil, ctx.Err()
			}
		}
		return c.Run(ctx, Shape{Rate: rate, For: s.Step}, s.Expect)
	})
	if err == nil && f.Late > 0 {
		err = fmt.Errorf("%w: it was late %d times at %.4g requests a second", ErrSender, tries, f.Late)
	}
	return f, err
}

// look carries out the search; try measures at a rate.
func (f *Found) look(ctx context.Context, s *Search, try func(context.Context, float64) (*Measurement, error)) error {
	high := 0.0
	fails := func(rate float64) (bool, error) {
		why, late, err := f.step(ctx, s, rate, try)
		switch {
		case late:
			high, f.Late = rate, rate
		case why != nil:
			// What was late above says nothing any more.
			high, f.Refused, f.Late, f.Because = rate, rate, 0, why
		}
		return why != nil, err
	}
	// Up, until there is a rate that is not borne.
	for rate := s.From; high == 0; rate = min(2*rate, s.To) {
		if f.Sustainable == s.To {
			return nil
		}
		failed, err := fails(rate)
		if err != nil {
			return err
		}
		if !failed {
			f.Sustainable = rate
		}
	}
	// Between, and down from the first if even that is not borne.
	for low := f.Sustainable; ; {
		for low < high*(1-s.Precision) {
			rate := (low + high) / 2
			if rate*s.Step.Seconds() < fewest {
				return nil
			}
			failed, err := fails(rate)
			if err != nil {
				return err
			}
			if !failed {
				low, f.Sustainable = rate, rate
			}
		}
		// Once more: it may have been luck. Then it is looked for below.
		failed, err := fails(low)
		if err != nil || !failed {
			return err
		}
		low, f.Sustainable = max(0, low*(1-4*s.Precision)), 0
	}
}

// step tries a rate, several times if it is not sustained while the sender is late. It returns why
// the rate is not sustained, or nil, and whether the sender was late each time.
func (f *Found) step(ctx context.Context, s *Search, rate float64, try func(context.Context, float64) (*Measurement, error)) (why []string, late bool, err error) {
	for range tries {
		if len(f.Steps) == maxSteps {
			return nil, false, fmt.Errorf("headgate: the search has not ended after %d steps: the service bears a rate now, and not then", maxSteps)
		}
		m, err := try(ctx, rate)
		if err != nil {
			return nil, false, err
		}
		f.Steps = append(f.Steps, m)
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		why = s.broken(m)
		if s.Progress != nil {
			s.Progress(m, why)
		}
		// A late sender makes latencies longer, never shorter, so a success counts.
		if m.Valid || why == nil {
			return why, false, nil
		}
	}
	return why, true, nil
}

// broken returns what does not hold.
func (s *Search) broken(m *Measurement) (why []string) {
	for _, e := range s.Expect {
		if failed := e.Failed(m); failed != "" {
			why = append(why, failed)
			continue
		}
		if e.Latency() && m.Rise*soon.Minutes() > e.bound {
			why = append(why, fmt.Sprintf("the median latency rises by %.1f ms in a minute", m.Rise))
		}
	}
	return why
}

// Expectation is a bound on what is measured, such as p95<200ms.
type Expectation struct {
	text    string
	what    string
	percent float64 // of a latency
	bound   float64 // milliseconds, a part or cores
	equal   bool    // the bound itself is fine
}

// The values that can be expected, other than percentiles.
const (
	errorShare   = "errors"
	limitedShare = "limited"
	serviceCores = "cpu"
)

var expectation = regexp.MustCompile(`^(p[0-9]{1,5}(?:\.[0-9]{1,3})?|max|errors|limited|cpu)(<=?)([0-9.]+)(%|[a-zµ]+)?$`)

// ParseExpectation parses one of these: a percentile of the latency (p50, p95, p99.9) or max, with
// a time; errors or limited, with a percentage; or cpu, with a number of cores.
func ParseExpectation(text string) (e Expectation, err error) {
	wrong := fmt.Errorf("headgate: --expect %q is not such as p95<200ms, errors<1%%, limited<5%% or cpu<1.5", text)
	found := expectation.FindStringSubmatch(strings.ReplaceAll(text, " ", ""))
	if found == nil {
		return e, wrong
	}
	e = Expectation{text: text, what: found[1], equal: found[2] == "<="}
	number, unit := found[3], found[4]
	switch e.what {
	case errorShare, limitedShare:
		e.bound, err = strconv.ParseFloat(number, 64)
		e.bound /= 100
		if err != nil || unit != "%" || e.bound > 1 {
			return e, wrong
		}
	case serviceCores:
		e.bound, err = strconv.ParseFloat(number, 64)
		if err != nil || unit != "" {
			return e, wrong
		}
	default:
		e.percent = 100
		if digits, ok := strings.CutPrefix(e.what, "p"); ok {
			e.percent = percentOf(digits)
		}
		d, err := time.ParseDuration(number + unit)
		if err != nil || d <= 0 || !(e.percent > 0 && e.percent <= 100) {
			return e, wrong
		}
		e.bound = ms(d)
	}
	return e, nil
}

// percentOf parses the digits of a percentile, such as 95, 99.9 and 999, which means 99.9.
func percentOf(digits string) float64 {
	if len(digits) > 2 && digits[0] == '9' && !strings.Contains(digits, ".") {
		digits = digits[:2] + "." + digits[2:]
	}
	percent, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	return percent
}

// String returns it as it was written.
func (e Expectation) String() string { return e.text }

// Latency reports whether it is a bound on a latency, CPU whether it is one on the cores
// that the service keeps busy, and Errors whether it is one on requests that are not served.
func (e Expectation) Latency() bool { return e.percent > 0 }

// CPU is described at [Expectation.Latency].
func (e Expectation) CPU() bool { return e.what == serviceCores }

// Errors is described at [Expectation.Latency].
func (e Expectation) Errors() bool { return e.what == errorShare }

// Failed says why the expectation does not hold, or returns "" if it does.
func (e Expectation) Failed(m *Measurement) string {
	var is float64
	var text string
	switch {
	case e.percent > 0:
		is = m.quantile(e.percent)
		text = fmt.Sprintf("%.1f ms", is)
		if m.latency.TotalCount() == 0 {
			return fmt.Sprintf("--expect %s does not hold: no request was served", e.text)
		}
	case e.what == errorShare:
		is = m.ErrorShare
		text = fmt.Sprintf("%.2f %%", 100*is)
	case e.what == limitedShare:
		is = m.limitedShare()
		text = fmt.Sprintf("%.2f %%", 100*is)
	default:
		is = m.Service
		text = fmt.Sprintf("%.2f", is)
	}
	if is < e.bound || e.equal && is == e.bound {
		return ""
	}
	return fmt.Sprintf("--expect %s does not hold: it is %s", e.text, text)
}

// limitedShare is the part of the requests that a limiter refused.
func (m *Measurement) limitedShare() float64 {
	var limited, all int64
	for i := range m.Over.Points {
		limited += m.Over.Points[i].Limited
		all += m.Over.Points[i].Scheduled
	}
	return float64(limited) / float64(max(all, 1))
}
