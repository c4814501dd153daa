package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Measurement is the result of sending requests in one [Shape]. Latencies and other times are in
// milliseconds.
type Measurement struct {
	// Scheduled is how many requests were due, and Sent how many of them were sent. The
	// others had waited for a free connection until the timeout.
	Scheduled int64 `json:"scheduled"`
	Sent      int64 `json:"sent"`
	// Status counts answers by their status: of HTTP, such as "200", or of gRPC, such as
	// "OK".
	Status map[string]int64 `json:"status"`
	// Latency is that of served requests, which have a status below 400. A request without an
	// answer in time counts with the timeout.
	Latency Percentiles `json:"latency_ms"`
	// Valid means that the sender was in time, so that the latencies are those of the service.
	// Otherwise, Invalid says why not.
	Valid   bool     `json:"valid"`
	Invalid []string `json:"invalid_because,omitempty"`

	// Errors counts requests without an answer, by the reason: timeout, refused, closed,
	// malformed, other or, if the measurement was ended early, interrupted.
	Errors map[string]int64 `json:"errors"`
	// ErrorShare is the part, 0 to 1, of the requests that were not served.
	ErrorShare float64 `json:"error_share"`
	// Rate and To are requests per second at the beginning and at the end. They are zero for
	// arrivals from a log. Held is how many were sent per second.
	Rate       float64 `json:"rate_per_second"`
	To         float64 `json:"to_per_second"`
	Held       float64 `json:"sent_per_second"`
	DurationMS float64 `json:"duration_ms"`
	// ByClass are the latencies of each class of answers: 2xx, 3xx, 4xx, 429, 5xx, or of
	// gRPC ok, limited and failed, or a reason of Errors.
	ByClass map[string]Percentiles `json:"latency_by_class_ms"`
	// Lag is how late the sender was.
	Lag Percentiles `json:"lag_ms"`
	// Waited is how many requests waited for a free connection, and WaitedMax for how long
	// at most.
	Waited    int64   `json:"waited"`
	WaitedMax float64 `json:"waited_max_ms"`
	// Rise is how much the median latency rises per minute; zero if that is not clear.
	Rise float64 `json:"rise_ms_per_minute"`
	// Sender is how many cores the sender kept busy, and Service how many the process of
	// [Options.PID] did. They are zero where the system does not say.
	Sender  float64 `json:"sender_cores"`
	Service float64 `json:"service_cores"`
	// Interrupted means that the measurement was ended early. Stopped means that it was ended
	// because an expectation could no longer hold.
	Interrupted bool `json:"interrupted,omitempty"`
	Stopped     bool `json:"stopped,omitempty"`
	// Targets are the requests that were sent most often, if there were several.
	Targets []TargetMeasurement `json:"targets,omitempty"`
	// Limiter is what the answers said about limits.
	Limiter *Limiter `json:"limiter,omitempty"`
	// Over is the course of the measurement over time.
	Over Series `json:"over_time"`

	latency *hdrhistogram.Histogram
}

// Percentiles are of lengths of time in milliseconds. All are zero if there are none.
type Percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// TargetMeasurement is one of several targets.
type TargetMeasurement struct {
	Target  string      `json:"target"`
	Sent    int64       `json:"sent"`
	Served  int64       `json:"served"`
	Latency Percentiles `json:"latency_ms"`
}

// Series is a course over time, in intervals of equal length.
type Series struct {
	StretchMS float64 `json:"stretch_ms"`
	Points    []Point `json:"points"`
}

// Point is one interval: the requests that were due in it. Limited are refusals by a limiter, and
// Failed all others that were not served.
type Point struct {
	Scheduled int64   `json:"scheduled"`
	Served    int64   `json:"served"`
	Limited   int64   `json:"limited"`
	Failed    int64   `json:"failed"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	Max       float64 `json:"max_ms"`
}

// Limiter is what answers said about limits.
type Limiter struct {
	// Denied is how many refusals there were. RetryAfter is how many of them said when to try
	// again, which was after ShortestMS to LongestMS.
	Denied     int64   `json:"denied"`
	RetryAfter int64   `json:"with_retry_after"`
	ShortestMS float64 `json:"shortest_retry_after_ms"`
	LongestMS  float64 `json:"longest_retry_after_ms"`
	// Limits are the limits that answers named, by any dialect of headers.
	Limits []ToldLimit `json:"limits,omitempty"`
}

// ToldLimit is a limit that answers named. Limit is -1 and PeriodMS is 0 if they did not say.
// Lowest is the lowest remaining number of units.
type ToldLimit struct {
	Limit    int64   `json:"limit"`
	PeriodMS float64 `json:"period_ms"`
	Lowest   int64   `json:"lowest_remaining"`
}

// Served is how many requests were served.
func (m *Measurement) Served() (n int64) {
	for i := range m.Over.Points {
		n += m.Over.Points[i].Served
	}
	return n
}

// quantile returns the latency, in milliseconds, that the given percentage of the requests did not
// exceed.
func (m *Measurement) quantile(percent float64) float64 { return quantile(m.latency, percent) }

func quantile(h *hdrhistogram.Histogram, percent float64) float64 {
	if h == nil || h.TotalCount() == 0 {
		return 0
	}
	return ms(time.Duration(h.ValueAtPercentile(percent)) * time.Microsecond)
}

func percentiles(h *hdrhistogram.Histogram) Percentiles {
	return Percentiles{
		P50: quantile(h, 50), P90: quantile(h, 90), P95: quantile(h, 95), P99: quantile(h, 99), P999: quantile(h, 99.9), Max: quantile(h, 100),
	}
}

// ms is a length of time in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }

// Merge adds up successive measurements of one client. It leaves out the rates.
func Merge(all []*Measurement) *Measurement {
	sum := &Measurement{Status: make(map[string]int64), Errors: make(map[string]int64), Valid: true, latency: histogram()}
	ended, missed := 0.0, 0.0
	for _, m := range all {
		sum.Scheduled += m.Scheduled
		sum.Sent += m.Sent
		sum.DurationMS += m.DurationMS
		for code, n := range m.Status {
			sum.Status[code] += n
		}
		for code, n := range m.Errors {
			sum.Errors[code] += n
		}
		sum.latency.Merge(m.latency)
		sum.Valid = sum.Valid && m.Valid
		sum.Invalid = append(sum.Invalid, m.Invalid...)
		sum.Interrupted = sum.Interrupted || m.Interrupted
		sum.Waited += m.Waited
		sum.WaitedMax = max(sum.WaitedMax, m.WaitedMax)
		sum.Lag.P99, sum.Lag.Max = max(sum.Lag.P99, m.Lag.P99), max(sum.Lag.Max, m.Lag.Max)
		sum.Sender += m.Sender * m.DurationMS
		sum.Service += m.Service * m.DurationMS
		n := float64(m.Scheduled)
		ended, missed = ended+n, missed+n*m.ErrorShare
	}
	if ended > 0 {
		sum.ErrorShare = missed / ended
	}
	if sum.DurationMS > 0 {
		sum.Held = float64(sum.Sent) / sum.DurationMS * 1000
		sum.Sender, sum.Service = sum.Sender/sum.DurationMS, sum.Service/sum.DurationMS
	}
	sum.Latency = percentiles(sum.latency)
	return sum
}

// Report is what a command has measured, as it is written as JSON.
type Report struct {
	// Measurement is that at the sustainable rate after a search, and the sum of all after several
	// steps.
	*Measurement
	// Target is what was asked for.
	Target string `json:"target"`
	// NotMet are the expectations that do not hold.
	NotMet []string `json:"not_met,omitempty"`
	// Found is what a search has found.
	*Found
	// Each is the measurement of each step, if there were several without a search.
	Each []*Measurement `json:"measurements,omitempty"`
	// Audit is what an audit of the limiter has found.
	Audit *Audit `json:"audit,omitempty"`
}
