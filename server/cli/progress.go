package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/tune/accesslog"
)

// progress shows how much of the logs was read: on a terminal as a bar, and elsewhere as a line now
// and then. Short readings show nothing.
type progress struct {
	w        io.Writer
	terminal bool
	begun    time.Time
	shown    time.Time
	drawn    bool
}

// The times between two updates.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
)

func newProgress(w io.Writer, quiet bool) *progress {
	if quiet {
		w = nil
	}
	now := time.Now()
	return &progress{w: w, terminal: isTerminal(w), begun: now, shown: now}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// update shows the progress of the log if it is time for an update.
func (p *progress) update(log *accesslog.Log, lines int64) {
	now := time.Now()
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	if p.w == nil || now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	read, all := log.Read()
	text := progressText(now.Sub(p.begun), lines, read, all)
	if !p.terminal {
		fmt.Fprintf(p.w, "headgate: %s\n", text)
		return
	}
	bar := ""
	if all > 0 {
		const width = 30
		full := int(min(read, all) * width / all)
		bar = "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "] "
	}
	p.drawn = true
	fmt.Fprintf(p.w, "\r\x1b[K%s%s", bar, text)
}

// progressText returns how much was read, how fast and, if the total size is known, how long the
// rest will take.
func progressText(passed time.Duration, lines, read, all int64) string {
	rate := float64(lines) / max(passed.Seconds(), 1e-3)
	text := fmt.Sprintf("%d requests, %.0f a second", lines, rate)
	if all <= 0 || read <= 0 {
		return text
	}
	done := min(float64(read)/float64(all), 1)
	left := time.Duration(float64(passed) * (1 - done) / done)
	return fmt.Sprintf("%.0f %%, %s, %v left", 100*done, text, left.Round(time.Second))
}

// end removes the bar.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
