package outbound

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// answer is what came of one of two attempts.
type answer struct {
	of   int // the attempt's number
	res  *http.Response
	hint Hint
	err  error
}

// errLost is the cause of the end of an attempt whose twin was answered first.
var errLost = errors.New("the other attempt was answered first")

// hedged sends the request, and once more if there is no answer for a while. The first
// answer that is not a failure wins, or else the last one; the other attempt is ended. That
// of the winner is ended by whoever closes its body.
func (c *call) hedged(try int) (*http.Response, Hint, error) {
	answers := make(chan answer, 2)
	var cancels []context.CancelCauseFunc
	begin := func() {
		ctx, cancel := context.WithCancelCause(c.ctx)
		done := func() { cancel(nil) }
		if c.t.config.TryTimeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, c.t.config.TryTimeout)
			done = func() { stop(); cancel(nil) }
		}
		of, charged := len(cancels), c.charged
		cancels = append(cancels, cancel)
		go func() {
			res, hint, err := c.sendIn(ctx, done, try, charged) //nolint:bodyclose // Who takes the answer closes it.
			answers <- answer{of, res, hint, err}
		}()
	}
	begin()
	timer := time.NewTimer(c.t.config.Hedge)
	defer timer.Stop()
	for open := 1; ; {
		select {
		case <-timer.C:
			if c.mayHedge() {
				begin()
				open++
			}
		case a := <-answers:
			open--
			if open > 0 && failed(a.res, &a.hint, a.err) {
				discard(a.res)
				continue
			}
			if open > 0 {
				// The other one ends at once, and its answer is nobody's.
				cancels[1-a.of](errLost)
				go func() { discard((<-answers).res) }()
			}
			return a.res, a.hint, a.err
		}
	}
}

// mayHedge reports whether there may be a second attempt, which counts against the budget and
// the limits of our own like any other. It does not wait: the answer to the first attempt may
// be there sooner.
func (c *call) mayHedge() bool {
	if c.Closed(c.endpoint) || !c.Take() {
		return false
	}
	left := c.left
	c.left = 0
	err := c.admit()
	c.left = left
	if err != nil {
		c.GiveBack()
		return false
	}
	return true
}
