package tunebench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// reported is what a generator says it has measured.
type reported struct {
	sent int64
	p99  time.Duration
	lag  time.Duration // of the sender, p99; -1 if it does not say
}

// generator is a program that sends requests.
type generator struct {
	name string
	note string
	// args are the arguments for a rate, which a generator without one is not given.
	args func(rate, connections int, d time.Duration, url string) []string
	read func(out []byte) (reported, error)
	// closed says that it cannot be given a rate.
	closed bool
}

// connections is how many all may use, and few how many where the tail is measured.
const (
	connections = 64
	few         = 16
)

// generators are all of them. Ours is the first.
func generators() []generator {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) + "s" }
	return []generator{
		{name: "headgate", note: "`headgate load`", read: readHeadgate, args: func(rate, n int, d time.Duration, url string) []string {
			return []string{"load", "--json", "--quiet", "--connections", strconv.Itoa(n), "--rate", strconv.Itoa(rate), "--duration", d.String(), url}
		}},
		{name: "oha", note: "`--latency-correction`, which is off unless asked for", read: readOha, args: func(rate, n int, d time.Duration, url string) []string {
			return []string{"--no-tui", "--output-format", "json", "--latency-correction", "-c", strconv.Itoa(n), "-q", strconv.Itoa(rate), "-z", seconds(d), url}
		}},
		{name: "oha, uncorrected", note: "as it is unless told otherwise", read: readOha, args: func(rate, n int, d time.Duration, url string) []string {
			return []string{"--no-tui", "--output-format", "json", "-c", strconv.Itoa(n), "-q", strconv.Itoa(rate), "-z", seconds(d), url}
		}},
		{name: "fortio", note: "`load -nocatchup=false`", read: readFortio, args: func(rate, n int, d time.Duration, url string) []string {
			return []string{"load", "-quiet", "-json", "-", "-p", "99", "-r", "0.0001", "-c", strconv.Itoa(n), "-qps", strconv.Itoa(rate), "-t", seconds(d), url}
		}},
		{name: "hey", note: "`-q` is per worker", read: readHey, args: func(rate, n int, d time.Duration, url string) []string {
			return []string{"-o", "csv", "-c", strconv.Itoa(n), "-q", strconv.FormatFloat(float64(rate)/float64(n), 'g', 6, 64), "-z", seconds(d), url}
		}},
		{name: "wrk", note: "has no rate: it sends as much as it can", closed: true, read: readWrk, args: func(_, n int, d time.Duration, url string) []string {
			return []string{"--latency", "-t", "1", "-c", strconv.Itoa(n), "-d", seconds(d), url}
		}},
	}
}

func readHeadgate(out []byte) (t reported, err error) {
	var m struct {
		Sent    int64
		Latency struct{ P99 float64 } `json:"latency_ms"`
		Lag     struct{ P99 float64 } `json:"lag_ms"`
	}
	err = json.Unmarshal(out, &m)
	return reported{m.Sent, millis(m.Latency.P99), millis(m.Lag.P99)}, err
}

func readOha(out []byte) (t reported, err error) {
	var m struct {
		Percentiles struct{ P99 float64 } `json:"latencyPercentiles"`
		Codes       map[string]int64      `json:"statusCodeDistribution"`
	}
	err = json.Unmarshal(out, &m)
	return reported{m.Codes["200"], millis(1000 * m.Percentiles.P99), -1}, err
}

func readFortio(out []byte) (t reported, err error) {
	var m struct {
		Histogram struct {
			Count       int64
			Percentiles []struct{ Percentile, Value float64 }
		} `json:"DurationHistogram"`
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return t, err
	}
	if len(m.Histogram.Percentiles) == 0 {
		return t, errors.New("fortio tells no percentile")
	}
	return reported{m.Histogram.Count, millis(1000 * m.Histogram.Percentiles[0].Value), -1}, nil
}

// readHey reads a line for each request, which begins with the time that it took.
func readHey(out []byte) (t reported, err error) {
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(rows) < 2 {
		return t, fmt.Errorf("hey has reported nothing: %w", err)
	}
	var all []float64
	for _, row := range rows[1:] {
		s, err := strconv.ParseFloat(row[0], 64)
		if err != nil {
			return t, err
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return reported{int64(len(all)), millis(1000 * all[len(all)*99/100]), -1}, nil
}

var (
	wrkTail = regexp.MustCompile(`(?m)^\s+99%\s+([0-9.]+)(us|ms|s)$`)
	wrkSent = regexp.MustCompile(`(?m)^\s+([0-9]+) requests in `)
)

func readWrk(out []byte) (t reported, err error) {
	tail, sent := wrkTail.FindSubmatch(out), wrkSent.FindSubmatch(out)
	if tail == nil || sent == nil {
		return t, fmt.Errorf("wrk says %q", out)
	}
	if t.sent, err = strconv.ParseInt(string(sent[1]), 10, 64); err != nil {
		return t, err
	}
	t.p99, err = time.ParseDuration(string(tail[1]) + string(tail[2]))
	t.lag = -1
	return t, err
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
