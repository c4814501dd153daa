package shed

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"runtime/metrics"
	"strconv"
)

// Scheduler is a [Signal] that measures how long goroutines wait for a processor, by the numbers of
// the Go runtime. It notices a lack of processors that the use of processor time does not show,
// such as a cgroup's quota, a noisy neighbour, or too many runnable goroutines. The zero Scheduler
// is not usable; see [NewScheduler].
type Scheduler struct {
	low, high float64
	sample    []metrics.Sample
	before    []uint64
}

// schedulerLatencies is the runtime's histogram of the time that goroutines were runnable but did
// not run.
const schedulerLatencies = "/sched/latencies:seconds"

// NewScheduler returns a Scheduler. It looks at the 99th percentile of the waits since it was last
// read. Up to 5 ms are no pressure, and from 50 ms on the pressure is 1.
func NewScheduler() *Scheduler {
	s := &Scheduler{low: 0.005, high: 0.05, sample: []metrics.Sample{{Name: schedulerLatencies}}}
	_, _ = s.Pressure() // so that it counts from now on
	return s
}

// Pressure implements [Signal].
func (s *Scheduler) Pressure() (float64, error) {
	metrics.Read(s.sample)
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0, fmt.Errorf("shed: this Go runtime has no metric %s", schedulerLatencies)
	}
	h := s.sample[0].Value.Float64Histogram()
	return between(s.quantile(h, 0.99), s.low, s.high), nil
}

// quantile returns a quantile of what the histogram has counted since the last call, in seconds:
// the lower bound of the bucket that contains it.
func (s *Scheduler) quantile(h *metrics.Float64Histogram, q float64) float64 {
	if len(s.before) != len(h.Counts) {
		s.before = make([]uint64, len(h.Counts))
	}
	total := uint64(0)
	for i, n := range h.Counts {
		total += n - s.before[i]
	}
	rest := uint64(float64(total) * (1 - q))
	at := math.Inf(-1)
	for i := len(h.Counts) - 1; i >= 0 && total > 0; i-- {
		n := h.Counts[i] - s.before[i]
		if n > rest {
			at = h.Buckets[i]
			break
		}
		rest -= n
	}
	copy(s.before, h.Counts)
	return max(at, 0)
}

// Throttling is a [Signal] that measures how often a cgroup's processor quota stops the process.
// See [NewThrottling].
type Throttling struct {
	files fs.FS
	name  string
	last  cpuStat
}

// NewThrottling returns a Throttling that reads the file cpu.stat of a cgroup, of version 1 or 2.
// name is the name of the file in files, such as "cpu.stat" in os.DirFS("/sys/fs/cgroup") in a
// container. If up to a twentieth of the quota's periods are throttled, there is no pressure; from
// a half on, the pressure is 1. The error says that the file cannot be read, or has no numbers
// about a quota.
func NewThrottling(files fs.FS, name string) (*Throttling, error) {
	t := &Throttling{files: files, name: name}
	_, err := t.Pressure()
	return t, err
}

// Pressure implements [Signal].
func (t *Throttling) Pressure() (float64, error) {
	text, err := fs.ReadFile(t.files, t.name)
	if err != nil {
		return 0, fmt.Errorf("shed: reading how often the processor quota ran out: %w", err)
	}
	now, err := parseCPUStat(text)
	if err != nil {
		return 0, fmt.Errorf("shed: reading %s: %w", t.name, err)
	}
	before := t.last
	t.last = now
	if now.periods <= before.periods || now.throttled < before.throttled || before.periods == 0 {
		return 0, nil
	}
	share := float64(now.throttled-before.throttled) / float64(now.periods-before.periods)
	return between(share, 0.05, 0.5), nil
}

// cpuStat holds the counters of a file cpu.stat.
type cpuStat struct{ periods, throttled uint64 }

func parseCPUStat(text []byte) (cpuStat, error) {
	var s cpuStat
	found := 0
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		var into *uint64
		switch string(name) {
		case "nr_periods":
			into = &s.periods
		case "nr_throttled":
			into = &s.throttled
		default:
			continue
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			return cpuStat{}, fmt.Errorf("%s: %w", name, err)
		}
		*into = n
		found++
	}
	if found != 2 {
		return cpuStat{}, fmt.Errorf("it has %d of the lines nr_periods and nr_throttled, must have one each", found)
	}
	return s, nil
}

// Memory is a [Signal] that measures how long processes wait for memory, by the kernel's pressure
// stall information. See [NewMemory].
type Memory struct {
	files fs.FS
	name  string
}

// NewMemory returns a Memory that reads a file of pressure stall information. name is the name of
// the file in files: "memory.pressure" in os.DirFS("/sys/fs/cgroup") for a cgroup of version 2, or
// "pressure/memory" in os.DirFS("/proc") for the machine. If processes wait for up to a hundredth
// of the last ten seconds, there is no pressure; from a fifth on, the pressure is 1. The error says
// that the file cannot be read or has another format.
func NewMemory(files fs.FS, name string) (*Memory, error) {
	m := &Memory{files, name}
	_, err := m.Pressure()
	return m, err
}

// Pressure implements [Signal].
func (m *Memory) Pressure() (float64, error) {
	text, err := fs.ReadFile(m.files, m.name)
	if err != nil {
		return 0, fmt.Errorf("shed: reading the memory pressure: %w", err)
	}
	share, err := parseStall(text)
	if err != nil {
		return 0, fmt.Errorf("shed: reading %s: %w", m.name, err)
	}
	return between(share, 0.01, 0.2), nil
}

// parseStall returns the share of the last ten seconds in which some process waited.
func parseStall(text []byte) (float64, error) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || string(fields[0]) != "some" {
			continue
		}
		value, ok := bytes.CutPrefix(fields[1], []byte("avg10="))
		if !ok {
			return 0, fmt.Errorf("the line %q must begin with avg10=", "some")
		}
		percent, err := strconv.ParseFloat(string(value), 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return 0, fmt.Errorf("avg10 is %.20q, must be a number from 0 to 100", value)
		}
		return percent / 100, nil
	}
	return 0, fmt.Errorf("it has no line %q", "some")
}
