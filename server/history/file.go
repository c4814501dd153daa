package history

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/telemetry/insight"
)

const (
	// every is how often a file is written.
	every = 10 * time.Minute
	// coarse is the length of the spans that minutes become when the recorder forgets them.
	coarse = 10 * time.Minute
	// maxRules is how many rules a span distinguishes: those with the most checks.
	maxRules = 50
	// maxMarks is how many marks are kept.
	maxMarks = 200
	// maxBytes bounds what is read. A week of 50 rules with long names takes a third of it.
	maxBytes = 64 << 20
	// format is the version of the file's content.
	format = 1
	// other names the rules that a span does not distinguish.
	other = "(other)"
)

// Recorded is what a [File] is filled from: an [insight.Recorder].
type Recorded interface {
	Spans(from int64, running bool) []insight.Span
	Now() time.Time
}

// File keeps the counts of one process in a file, which it replaces as a whole. Make one with
// [Open]. It is safe for concurrent use.
type File struct {
	path   string
	from   Recorded
	marks  func() []Mark
	logger *slog.Logger

	mu   sync.Mutex // guards what follows
	kept content
	next int64 // the first minute that was not taken from the recorder, in seconds since 1970
}

// content is the file's, as JSON that is compressed with gzip, whose sum tells whether it is whole.
type content struct {
	Format int            `json:"history_of_headgate"`
	Spans  []insight.Span `json:"spans"` // in the order of time
	Marks  []Mark         `json:"marks,omitempty"`
}

// Open reads the file, which may be missing. A file that is not whole, or not of this kind, is logged
// and moved to the path with ".unreadable" behind it, and the history begins anew.
func Open(path string, from Recorded, logger *slog.Logger) *File {
	f := &File{path: path, from: from, marks: func() []Mark { return nil }, logger: logger, kept: content{Format: format}}
	kept, err := read(path)
	switch {
	case err == nil:
		f.kept = kept
	case !errors.Is(err, fs.ErrNotExist):
		aside := path + ".unreadable"
		logger.Warn("the history cannot be read, and begins anew", slog.String("file", path), slog.Any("error", err), slog.String("moved_to", aside))
		if err := os.Rename(path, aside); err != nil {
			logger.Error("the history cannot be moved, and will not be written", slog.Any("error", err))
			f.path = ""
		}
	}
	return f
}

func read(path string) (c content, err error) {
	file, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return c, fmt.Errorf("it is not a history of Headgate: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(plain, maxBytes+1))
	switch {
	case err != nil:
		return c, fmt.Errorf("it is not whole: %w", err)
	case len(text) > maxBytes:
		return c, fmt.Errorf("it holds more than %d MiB", maxBytes>>20)
	}
	if err := json.Unmarshal(text, &c); err != nil || c.Format != format {
		return content{}, errors.Join(errors.New("it is not a history of this version of Headgate"), err)
	}
	for i := range c.Marks {
		// Of an outage in which the process ended, the end is not known better.
		if m := &c.Marks[i]; m.Kind == "outage" && m.Until == 0 && len(c.Spans) > 0 {
			last := c.Spans[len(c.Spans)-1]
			m.Until = max(m.At, (last.At+last.Of)*1000)
		}
	}
	return c, nil
}

// Run takes what was counted and writes the file, now and then, until ctx ends, and once more then.
// marks returns what has happened since the start.
func (f *File) Run(ctx context.Context, marks func() []Mark) {
	f.mu.Lock()
	f.marks = marks
	f.mu.Unlock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		last := ctx.Err() != nil
		f.write(last)
		if last {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// take takes what the recorder has counted since the last time.
func (f *File) take(running bool) {
	spans := f.from.Spans(f.next, running)
	for i := range spans {
		spans[i].Bound(maxRules, other)
		f.next = spans[i].At + spans[i].Of
	}
	f.kept.Spans = append(f.kept.Spans, spans...)
	now := f.from.Now()
	oldest, minutes := now.Add(-Kept).Unix(), now.Add(-insight.Kept).Unix()
	var kept []insight.Span
	for _, s := range f.kept.Spans {
		if s.At < oldest {
			continue
		}
		const of = int64(coarse / time.Second)
		if begin := s.At - s.At%of; begin+of <= minutes {
			s.At, s.Of = begin, of
		}
		if n := len(kept); n > 0 && kept[n-1].At == s.At && kept[n-1].Of == s.Of {
			kept[n-1].Add(s)
			kept[n-1].Bound(maxRules, other)
			continue
		}
		kept = append(kept, s)
	}
	f.kept.Spans = kept
}

func (f *File) write(last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(last)
	f.mark()
	if f.path == "" {
		return
	}
	if err := f.replace(); err != nil {
		f.logger.Warn("the history cannot be written", slog.String("file", f.path), slog.Any("error", err))
	}
}

// mark takes what has happened. An outage that was kept may have ended since.
func (f *File) mark() {
	all, oldest := f.marks(), f.from.Now().Add(-Kept).UnixMilli()
	for _, m := range f.kept.Marks {
		again := slices.ContainsFunc(all, func(o Mark) bool { return o.At == m.At && o.Kind == m.Kind })
		if m.At >= oldest && !again {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	f.kept.Marks = all[max(0, len(all)-maxMarks):]
}

// replace writes another file and puts it in the place of the old one, so that no crash leaves half
// of it.
func (f *File) replace() (err error) {
	file, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}()
	packed := gzip.NewWriter(file)
	if err := errors.Join(json.NewEncoder(packed).Encode(f.kept), packed.Close(), file.Sync()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), f.path); err != nil {
		return err
	}
	return file.Close()
}

// Source implements [Reader].
func (f *File) Source() string { return "a file" }

// Whole implements [Reader].
func (f *File) Whole() bool { return false }

// Read implements [Reader]. It reads memory, and fails never.
func (f *File) Read(_ context.Context, q Question) (insight.Past, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(false)
	past, step := q.blank(), int64(q.Step/time.Second)
	from, until := q.From.Unix(), q.Until.Unix()
	before := from - (until - from)
	rules := make(map[string]*insight.RuleCounts)
	for _, s := range f.kept.Spans {
		in := s.At >= from && s.At < until
		if !in && (s.At < before || s.At >= from) {
			continue
		}
		if in {
			to := &past.Minutes[(s.At-from)/step]
			to.Unknown = false
			if q.Rule == "" {
				to.Add(s.All)
			} else {
				to.Add(s.Rules[q.Rule])
			}
		}
		for name, c := range s.Rules {
			if rules[name] == nil {
				rules[name] = &insight.RuleCounts{Rule: name}
			}
			if in {
				rules[name].Add(c)
			} else {
				rules[name].Before.Add(c)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if q.Rule == "" {
			past.Rules = append(past.Rules, *rules[name])
		}
	}
	return past, nil
}

// Marks implements [Reader].
func (f *File) Marks(_ context.Context, from, until time.Time) ([]Mark, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.kept.Marks), func(m Mark) bool { return m.At < from.UnixMilli() || m.At > until.UnixMilli() }), nil
}
