package storetest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the vectors name time zones, which not every machine knows

	"github.com/headgate/headgate"
)

//go:embed vectors/*.vec
var vectorFiles embed.FS

// Vector is a table of steps on one store: clock, operation, expected decisions.
// The steps are cumulative. See the package documentation for the text form.
type Vector struct {
	// File is where the steps were read, for messages.
	File string
	// Steps are in the order of the file, not of time.
	Steps []Step
}

// Step is one request to a store, and what must come of it.
type Step struct {
	// Line is where the step begins in the vector's file, from 1.
	Line int
	// Now is the time of the step, in microseconds since the Unix epoch.
	Now int64
	// Op and Checks are the request.
	Op     headgate.Op
	Checks []headgate.Check
	// Want has every field of every decision; nothing for OpReset.
	Want []headgate.Decision
}

// Vectors returns the vectors that every store passes.
func Vectors() ([]*Vector, error) {
	files, err := fs.Glob(vectorFiles, "vectors/*.vec")
	if err != nil {
		return nil, fmt.Errorf("storetest: %w", err)
	}
	vectors := make([]*Vector, 0, len(files))
	var mistakes []error
	for _, file := range files {
		text, err := vectorFiles.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("storetest: %w", err)
		}
		v, err := ParseVector(file, string(text))
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		vectors = append(vectors, v)
	}
	return vectors, errors.Join(mistakes...)
}

// Run carries out the steps on a fresh store and compares every field of every
// decision. It stops at the first step that differs, because those behind it
// would only differ for the same reason.
func (v *Vector) Run(t testing.TB, mk Maker) {
	t.Helper()
	if s := v.play(t, mk, len(v.Steps)); s == nil {
		return
	}
	// RetryAfter is a promise about a time that the vector need not visit: that
	// is looked at on a store for each denial, which then has no future to spoil.
	for i := range v.Steps {
		if step := &v.Steps[i]; !headgate.NewVerdict(step.Want).Allowed && step.Op != headgate.OpRefund {
			v.retry(t, mk, i)
		}
	}
}

// retry plays the steps up to a denial, and then holds each limit to the time at
// which it said that it would admit.
func (v *Vector) retry(t testing.TB, mk Maker, last int) {
	t.Helper()
	s := v.play(t, mk, last+1)
	if s == nil {
		return
	}
	step := &v.Steps[last]
	for i := range step.Want {
		wait := step.Want[i].RetryAfter
		if wait == headgate.Never || wait == 0 || wait > headgate.MaxRefill { // the last is cut, not exact
			continue
		}
		for _, at := range []struct {
			after time.Duration
			want  bool
		}{{wait - time.Microsecond, false}, {wait, true}} {
			s.clock.Set(step.Now + at.after.Microseconds())
			got, err := s.store.Take(context.Background(), headgate.OpPeek, step.Checks, nil)
			if err != nil {
				t.Errorf("%s:%d: peek %v later: %v", v.File, step.Line, at.after, err)
				return
			}
			if len(got) != len(step.Want) || got[i].Allowed != at.want {
				t.Errorf("%s:%d: limit %d (%v) said retry=%s; %s later: %s; want allowed: %t", v.File, step.Line, i+1, step.Want[i].Limit,
					formatDuration(wait), formatDuration(at.after), formatDecision(&got[i]), at.want)
			}
		}
	}
}

// play carries out the first n steps on a fresh store, which it returns, or nil
// if a step went wrong.
func (v *Vector) play(t testing.TB, mk Maker, n int) *subject {
	t.Helper()
	s := newSubject(t, mk)
	for i := range v.Steps[:n] {
		step := &v.Steps[i]
		s.clock.Set(step.Now)
		got, err := s.store.Take(context.Background(), step.Op, step.Checks, nil)
		if err != nil {
			t.Errorf("%s:%d: %s: %v", v.File, step.Line, step.Op, err)
			return nil
		}
		if len(got) != len(step.Want) {
			t.Errorf("%s:%d: %s: got %d decisions, want %d", v.File, step.Line, step.Op, len(got), len(step.Want))
			return nil
		}
		same := true
		for j := range got {
			if got[j] != step.Want[j] {
				same = false
				t.Errorf("%s:%d: decision %d, of rule %s, limit %v:\n got %s\nwant %s", v.File, step.Line, j+1,
					step.Want[j].Rule.Name(), step.Want[j].Limit, formatDecision(&got[j]), formatDecision(&step.Want[j]))
			}
		}
		if !same {
			return nil
		}
	}
	return s
}

// formatDecision writes a decision as a vector does.
func formatDecision(d *headgate.Decision) string {
	var b strings.Builder
	b.WriteString("deny")
	if d.Allowed {
		b.Reset()
		b.WriteString("allow")
	}
	fmt.Fprintf(&b, " remaining=%d", d.Remaining)
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"retry", d.RetryAfter}, {"reset", d.ResetAfter}, {"delay", d.Delay}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%s", f.name, formatDuration(f.value))
		}
	}
	fmt.Fprintf(&b, " (check %d, at %d)", d.Check+1, d.At)
	return b.String()
}

// formatDuration writes a duration as a vector does: days stand apart, so that
// long ones can be read.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == headgate.Never:
		return "never"
	case d < day:
		return d.String()
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dd%s", d/day, d%day)
}
