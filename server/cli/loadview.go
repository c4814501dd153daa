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

// loadView shows how a measurement goes: a few lines that are drawn anew on a terminal, and
// a line now and then elsewhere.
type loadView struct {
	w        io.Writer
	terminal bool
	every    time.Duration

	mu    sync.Mutex
	drawn int // lines that stand on the terminal
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

// tell shows what was measured so far.
func (v *loadView) tell(m *load.Measurement) {
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

// step shows a step that has ended, and why its rate is not borne.
func (v *loadView) step(m *load.Measurement, why []string) {
	text := tunereport.LoadLine(m)
	if why != nil {
		text += "; too many: " + strings.Join(why, "; ")
	}
	v.say(text)
}

// say writes a line that stays.
func (v *loadView) say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprintf(v.w, "headgate: %s\n", text)
}

// end takes away what is drawn anew.
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
