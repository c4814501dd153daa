package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/tune/load"
	tunereport "github.com/headgate/headgate/tune/report"
)

// loadView shows the progress of a measurement: on a terminal as a few lines that are redrawn, and
// elsewhere as a line now and then.
type loadView struct {
	w        io.Writer
	terminal bool
	every    time.Duration

	mu    sync.Mutex
	drawn int // lines on the terminal that will be redrawn
}

func newLoadView(w io.Writer, quiet bool) *loadView {
	v := &loadView{w: w, terminal: isTerminal(w), every: lineEvery}
	if v.terminal {
		v.every = barEvery
	}
	if quiet {
		v.w, v.every = io.Discard, 0
	}
	return v
}

// show shows what was measured so far.
func (v *loadView) show(m *load.Measurement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.terminal {
		fmt.Fprintf(v.w, "headgate: %s\n", tunereport.LoadLine(m))
		return
	}
	text := tunereport.LoadLive(m)
	v.erase()
	fmt.Fprint(v.w, text)
	v.drawn = strings.Count(text, "\n")
}

// step shows a step that has ended, and why its rate is not sustained.
func (v *loadView) step(m *load.Measurement, why []string) {
	text := tunereport.LoadLine(m)
	if why != nil {
		text += "; too many: " + strings.Join(why, "; ")
	}
	v.say(text)
}

// say writes a line that is not redrawn.
func (v *loadView) say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprintf(v.w, "headgate: %s\n", text)
}

// end removes the lines that are redrawn.
func (v *loadView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
}

func (v *loadView) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\r\x1b[J", v.drawn)
	}
	v.drawn = 0
}
