package cas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// The flags of a note, in the byte that follows its version.
const (
	flagReserved = 1 << iota
	flagAdmitted
	flagFinished
	flagSettled
	flagMadeUp // the store made the id up; older versions of the program set no such flag
)

func appendNote(b []byte, n *note) []byte {
	var flags byte
	if n.reserved {
		flags |= flagReserved
	}
	if n.admitted {
		flags |= flagAdmitted
	}
	if n.finished {
		flags |= flagFinished
	}
	if n.units != nil {
		flags |= flagSettled
	}
	if !n.chosen {
		flags |= flagMadeUp
	}
	b = append(b, version, flags)
	b = binary.AppendVarint(b, n.term)
	b = binary.AppendVarint(b, int64(n.expires))
	b = binary.AppendVarint(b, int64(n.at))
	b = binary.AppendUvarint(b, uint64(len(n.checks)))
	for i := range n.checks {
		c := &n.checks[i]
		b = appendText(b, c.name)
		b = appendText(b, c.tag)
		b = appendText(b, c.check.Key)
		b = binary.AppendUvarint(b, uint64(c.check.Units()))
		b = binary.AppendUvarint(b, uint64(max(c.check.Factor, 0)))
		var flags byte
		if c.check.GiveBack {
			flags |= 1
		}
		if c.check.Shadow {
			flags |= 2
		}
		b = append(b, flags, byte(c.check.OnError), byte(c.check.Consistency), byte(c.check.DenyCache), byte(c.count))
		b = appendText(b, c.limits)
	}
	b = appendAnswers(b, n.answers)
	if n.units != nil {
		b = binary.AppendVarint(b, int64(n.settledAt))
		b = binary.AppendUvarint(b, uint64(len(n.units)))
		for _, u := range n.units {
			b = binary.AppendUvarint(b, uint64(u))
		}
		b = appendAnswers(b, n.settled)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendAnswers(b []byte, all []answer) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, a := range all {
		var flags byte
		if a.allowed {
			flags |= 1
		}
		if a.retryAfter == headgate.Never {
			flags |= 2
			a.retryAfter = 0
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(a.remaining))
		b = binary.AppendVarint(b, a.retryAfter.Microseconds())
		b = binary.AppendVarint(b, a.resetAfter.Microseconds())
		b = binary.AppendVarint(b, a.delay.Microseconds())
	}
	return b
}

// maxText bounds each text of a note: the limits of a rule, with the names of their
// zones.
const maxText = 1 << 13

// readNote is the inverse of appendNote. Of nil it returns nil.
func readNote(b []byte) (*note, error) {
	if b == nil {
		return nil, nil
	}
	r := reader{left: b}
	if v := r.byte(); v != version {
		return nil, fmt.Errorf("it begins with version %d, and %d is known", v, version)
	}
	flags := r.byte()
	n := &note{reserved: flags&flagReserved != 0, admitted: flags&flagAdmitted != 0, finished: flags&flagFinished != 0, chosen: flags&flagMadeUp == 0}
	n.term, n.expires, n.at = r.micros(), r.time(), r.time()
	limits := 0
	for range r.uint(headgate.MaxChecks) {
		c := noted{name: r.string(headgate.MaxName), tag: r.string(headgate.MaxTag)}
		c.check = headgate.Check{Key: r.string(headgate.MaxKey), Cost: int64(r.uint(headgate.MaxCount)), Factor: int64(r.uint(1 << 62))}
		flags := r.byte()
		c.check.GiveBack, c.check.Shadow = flags&1 != 0, flags&2 != 0
		c.check.OnError, c.check.Consistency, c.check.DenyCache = headgate.OnError(r.byte()), headgate.Consistency(r.byte()), headgate.DenyCache(r.byte())
		c.count = int(r.byte())
		if c.limits = r.string(maxText); r.err != nil {
			return nil, r.err
		}
		if c.limits == "" || int(c.limits[0]) != c.count {
			return nil, errors.New("it miscounts its limits")
		}
		limits += c.count
		n.checks = append(n.checks, c)
	}
	n.answers = r.answers(limits)
	if flags&flagSettled != 0 {
		n.settledAt = r.time()
		n.units = make([]int64, r.uint(headgate.MaxChecks))
		for i := range n.units {
			n.units[i] = int64(r.uint(headgate.MaxCount))
		}
		n.settled = r.answers(-1)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if len(n.checks) == 0 {
		return nil, errors.New("it has no checks")
	}
	charged := 0
	for i := range n.checks {
		if n.charged(i) {
			charged += n.checks[i].count
		}
	}
	if n.units != nil && len(n.settled) != charged {
		return nil, fmt.Errorf("it has %d answers for %d limits that were settled", len(n.settled), charged)
	}
	return n, nil
}

// answers reads as many as there must be; any number if that is negative.
func (r *reader) answers(want int) []answer {
	got := int(r.uint(headgate.MaxChecks * headgate.MaxLimits))
	if r.err == nil && want >= 0 && got != want {
		r.fail(fmt.Errorf("it has %d answers for %d limits", got, want))
	}
	if r.err != nil {
		return nil
	}
	all := make([]answer, got)
	for i := range all {
		flags := r.byte()
		a := answer{allowed: flags&1 != 0, remaining: int64(r.uint(headgate.MaxCount))}
		a.retryAfter, a.resetAfter, a.delay = r.duration(), r.duration(), r.duration()
		if flags&2 != 0 {
			a.retryAfter = headgate.Never
		}
		all[i] = a
	}
	return all
}

// maxDuration is the longest time that a decision can tell, in µs.
const maxDuration = int64(headgate.MaxRefill/time.Microsecond) + 1

func (r *reader) duration() time.Duration {
	us := r.micros()
	if us < 0 || us > maxDuration {
		r.fail(errors.New("a time in it is out of bounds"))
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// appendLimits writes all that NewRule needs of a rule's limits.
func appendLimits(b []byte, limits []headgate.Limit) []byte {
	b = append(b, byte(len(limits)))
	for i := range limits {
		l := &limits[i]
		b = append(b, byte(l.Algorithm), byte(l.Align))
		b = binary.AppendUvarint(b, uint64(l.Count))
		b = binary.AppendUvarint(b, uint64(l.Burst))
		b = binary.AppendUvarint(b, uint64(l.Period))
		b = binary.AppendUvarint(b, uint64(l.Block))
		b = binary.AppendUvarint(b, uint64(l.MaxBlock))
		zone := ""
		if l.Location != nil {
			zone = l.Location.String()
		}
		b = appendText(b, zone)
	}
	return b
}

func readLimits(text string) ([]headgate.Limit, error) {
	r := reader{left: []byte(text)}
	n := int(r.byte())
	if n > headgate.MaxLimits {
		return nil, fmt.Errorf("it has %d limits, and can have %d", n, headgate.MaxLimits)
	}
	limits := make([]headgate.Limit, n)
	const most = uint64(headgate.MaxPeriod)
	for i := range limits {
		l := &limits[i]
		l.Algorithm, l.Align = headgate.Algorithm(r.byte()), headgate.Alignment(r.byte())
		l.Count, l.Burst = int64(r.uint(headgate.MaxCount)), int64(r.uint(headgate.MaxCount))
		l.Period, l.Block, l.MaxBlock = time.Duration(r.uint(most)), time.Duration(r.uint(most)), time.Duration(r.uint(most))
		if zone := r.string(maxText); zone != "" && r.err == nil {
			location, err := headgate.LoadLocation(zone)
			if err != nil {
				return nil, fmt.Errorf("limit %d: %w", i+1, err)
			}
			l.Location = location
		}
	}
	return limits, r.end()
}
