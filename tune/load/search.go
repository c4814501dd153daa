package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Search says how the sustainable throughput is looked for.
type Search struct {
	// From is the first rate that is tried, in requests a second, and To the highest.
	From, To float64
	// Step is for how long each rate is tried.
	Step time.Duration
	// Rest is for how long nothing is sent between two rates.
	Rest time.Duration
	// Precision is how far the rate that is borne may be below one that is not, as a part
	// of it.
	Precision float64
	// Expect is what must hold. Besides, the median latency must not rise so fast that the
	// bound on the latency would be broken within a minute.
	Expect []Expectation
	// Told is told of each step when it has ended; nil tells nobody.
	Told func(*Measurement, []string)
}

// Found is what a search has found.
type Found struct {
	// Sustainable is the highest rate, in requests a second, that was borne. It was tried
	// twice, unless it is the highest of the search. Zero if there is none.
	Sustainable float64 `json:"sustainable_per_second"`
	// Refused is the lowest rate that was not borne, and Because why. It is zero if the
	// highest rate was borne, or the sender could send no more.
	Refused float64 `json:"not_sustainable_per_second"`
	// Late is the lowest rate at which the sender was late each time, so that it is not
	// known whether it was borne. It is zero if there is none.
	Late    float64  `json:"sender_late_per_second,omitempty"`
	Because []string `json:"because"`
	// Steps are the rates that were tried, in order.
	Steps []*Measurement `json:"steps"`
}

// ErrSender is the error of a sender that cannot send as fast as it should.
var ErrSender = errors.New("headgate: the sender is too slow")

const (
	// tries is how often a rate is tried that is not borne while the sender is late.
	tries = 3
	// maxSteps bounds a search.
	maxSteps = 100
	// soon is the time within which a latency that rises must not reach its bound.
	soon = time.Minute
	// fewest is how many requests a rate is tried with at least.
	fewest = 10
)

// Check returns an error that says what cannot be.
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

// Search looks for the highest rate that a service bears for good. It doubles the rate until
// the service does not bear it, and then halves the distance between the highest rate that
// was borne and the lowest that was not. The result is tried once more. When the context is
// done, the error is the context's. If the sender is late at a rate that is not borne, however
// often it is tried, the rates below are tried, and the error is [ErrSender]: the service may
// bear more than was found. What was found is returned in any case.
func (c *Client) Search(ctx context.Context, s Search) (*Found, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	f := new(Found)
	err := f.look(ctx, &s, func(ctx context.Context, rate float64) (*Measurement, error) {
		if len(f.Steps) > 0 {
			if err := rest(ctx, s.Rest); err != nil {
				return nil, err
			}
		}
		return c.Run(ctx, Shape{Rate: rate, For: s.Step}, s.Expect)
	})
	if err == nil && f.Late > 0 {
		err = fmt.Errorf("%w: it was late %d times at %.4g requests a second", ErrSender, tries, f.Late)
	}
	return f, err
}

// look searches; try tries a rate.
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

// step tries a rate, several times if it is not borne while the sender is late. It returns
// why the rate is not borne, or nil, and whether the sender was late each time.
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
		if s.Told != nil {
			s.Told(m, why)
		}
		// A sender that is late makes latencies longer, and never shorter.
		if m.Valid || why == nil {
			return why, false, nil
		}
	}
	return why, true, nil
}

// broken says what does not hold.
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

// rest waits, unless the context is done.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
