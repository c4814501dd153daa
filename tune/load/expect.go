package load

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

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
