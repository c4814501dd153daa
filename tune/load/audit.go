package load

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/httplimit/outbound"
)

// AuditOptions say how a limiter is audited.
type AuditOptions struct {
	// Rounds is how many times the limiter is brought to a denial. Zero means 3.
	Rounds int
	// Most is the maximum number of requests in a round. Zero means 10,000.
	Most int
	// Patience is the longest announced wait that the audit waits for. Zero means two minutes.
	Patience time.Duration
	// Told is called with a text about each step. It may be nil.
	Told func(string)
}

// Audit compares what a limiter says with what it does. All requests come from one client.
type Audit struct {
	// Honest is true if nothing that the limiter said was found to be wrong.
	Honest bool `json:"honest"`
	// Findings are the results, in order.
	Findings []Finding `json:"findings"`
	// Rounds are what happened, round by round.
	Rounds []AuditRound `json:"rounds"`
}

// Finding is the result for one thing that a limiter says.
type Finding struct {
	// About is a name such as retry_after. Outcome is true, wrong or unknown.
	About   string `json:"about"`
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
}

// The outcomes of a [Finding].
const (
	True    = "true"
	Wrong   = "wrong"
	Unknown = "unknown"
)

// AuditRound is one series of requests up to a denial, and the wait after it.
type AuditRound struct {
	// Admitted is how many requests were admitted before the first denial, and PassedMS how long
	// that took.
	Admitted int     `json:"admitted"`
	PassedMS float64 `json:"passed_ms"`
	// Limit and Remaining are what the first answer said about the limit that ran out first. Limit
	// is its size, or -1.
	Limit     int64 `json:"limit"`
	Remaining int64 `json:"remaining"`
	// Denied is the status of the denial; empty if there was none.
	Denied string `json:"denied"`
	// RetryAfterMS is what the denial said, or -1.
	RetryAfterMS float64 `json:"retry_after_ms"`
	// Earlier is true if a request was sent halfway through that time, and EarlierAdmitted if it
	// was admitted.
	Earlier         bool `json:"tried_earlier"`
	EarlierAdmitted bool `json:"earlier_admitted"`
	// InTime is true if a request was sent at the end of that time, and InTimeAdmitted if it was
	// admitted.
	InTime         bool `json:"tried_in_time"`
	InTimeAdmitted bool `json:"in_time_admitted"`

	overstated  int // answers that promised more than was admitted
	understated int // answers that promised less, by more than time can explain
	reset       *resetTried
}

// resetTried is a reset for which the audit waited.
type resetTried struct {
	wait             time.Duration
	limit, remaining int64 // -1 if the request after it was denied
}

// probe is an answer and what it said.
type probe struct {
	answer
	hint outbound.Hint
	at   time.Time
}

// Audit brings the limiter of the first target to a denial several times, one request after the
// other, and compares what it says with what it does. It takes as long as the waits that the
// limiter announces. The error is the context's, or says that the target did not answer.
func (c *Client) Audit(ctx context.Context, o AuditOptions) (*Audit, error) {
	o.Rounds, o.Most, o.Patience = cmp.Or(o.Rounds, 3), cmp.Or(o.Most, 10_000), cmp.Or(o.Patience, 2*time.Minute)
	if o.Told == nil {
		o.Told = func(string) {}
	}
	a := &auditor{client: c, o: &o, sender: c.sender()}
	defer func() { c.idle = append(c.idle, a.sender) }()
	var rounds []AuditRound
	for i := range o.Rounds {
		r, err := a.round(ctx, i)
		if r != nil {
			rounds = append(rounds, *r)
		}
		if err != nil {
			return conclude(rounds), err
		}
		if r.Denied == "" {
			break // another round would not be denied either
		}
	}
	return conclude(rounds), nil
}

// auditor audits.
type auditor struct {
	client *Client
	o      *AuditOptions
	sender sender
}

// ask sends one request.
func (a *auditor) ask(ctx context.Context) (p probe, err error) {
	p.at = time.Now()
	p.answer = a.sender.send(ctx, a.client.options.Targets[0], p.at.Add(a.client.options.Timeout))
	if p.kind == abandoned {
		return p, context.Cause(ctx)
	}
	if p.kind > failed {
		return p, fmt.Errorf("%w: there was no answer: %s", ErrUnreachable, p.code)
	}
	p.hint = outbound.ReadHint(p.status, p.header, time.Now())
	return p, nil
}

// denied reports whether a limiter has refused.
func (p *probe) denied() bool { return p.kind == limited || p.hint.Limited }

// round sends requests until one is denied, and then waits until the limiter says that there is
// room.
func (a *auditor) round(ctx context.Context, i int) (*AuditRound, error) {
	a.o.Told(fmt.Sprintf("round %d of %d: sending requests until one is denied", i+1, a.o.Rounds))
	r := &AuditRound{Limit: -1, Remaining: -1, RetryAfterMS: -1}
	began := time.Now()
	var seen []probe
	var last probe
	for range a.o.Most {
		p, err := a.ask(ctx)
		if err != nil {
			return r, err
		}
		last = p
		if p.denied() {
			r.Denied = p.code
			break
		}
		seen = append(seen, p)
	}
	r.Admitted, r.PassedMS = len(seen), ms(last.at.Sub(began))
	if len(seen) > 0 {
		if w, ok := tightest(&seen[0]); ok {
			r.Limit, r.Remaining = w.Limit, w.Remaining
		}
	}
	if r.Denied == "" {
		return r, nil
	}
	r.compare(seen, last.at)
	if err := a.retry(ctx, r, &last, i); err != nil {
		return r, err
	}
	return r, a.reset(ctx, r, &last)
}

// tightest returns the limit with the fewest units left. It returns false if the answer names no
// limit.
func tightest(p *probe) (least outbound.Window, ok bool) {
	for _, w := range p.hint.Windows {
		if !ok || w.Remaining < least.Remaining {
			least, ok = w, true
		}
	}
	return least, ok
}

// compare compares what each answer promised to what was admitted after it.
func (r *AuditRound) compare(seen []probe, denied time.Time) {
	for i := range seen {
		w, ok := tightest(&seen[i])
		if !ok {
			continue
		}
		after := int64(len(seen) - 1 - i)
		if w.Remaining > after {
			r.overstated++
		}
		// Units may have become free since then: the whole limit at the reset, which may have been
		// rounded up to whole seconds.
		span := w.Reset - time.Second
		if w.Limit < 0 || span <= 0 {
			continue
		}
		parts := float64(denied.Sub(seen[i].at)) / float64(span)
		if parts >= 1 {
			parts++
		}
		free := int64(float64(w.Limit) * parts)
		if after > w.Remaining+free+1 {
			r.understated++
		}
	}
}

// slackFor is the tolerance for an announced instant, because of the network and the sender.
const slackFor = 20 * time.Millisecond

// retry tests whether a denial's Retry-After is true. In every second round it also tries halfway,
// or at the reset that the denial announces if that is earlier.
func (a *auditor) retry(ctx context.Context, r *AuditRound, denial *probe, i int) error {
	wait := denial.hint.Wait
	if wait <= 0 {
		return nil
	}
	r.RetryAfterMS = ms(wait)
	if wait > a.o.Patience {
		return nil
	}
	end := time.Now().Add(wait)
	if i%2 == 1 {
		a.o.Told(fmt.Sprintf("round %d of %d: trying before a Retry-After of %v is over", i+1, a.o.Rounds, wait))
		early := wait / 2
		w, ok := tightest(denial)
		sooner := ok && w.Reset > 0 && w.Reset < wait-time.Second
		if sooner {
			early = w.Reset + slackFor
		}
		if err := rest(ctx, early); err != nil {
			return err
		}
		p, err := a.ask(ctx)
		if err != nil {
			return err
		}
		if r.Earlier, r.EarlierAdmitted = true, !p.denied(); sooner && p.denied() {
			r.reset = &resetTried{wait: w.Reset, limit: w.Limit, remaining: -1}
		}
	}
	a.o.Told(fmt.Sprintf("round %d of %d: waiting for the end of a Retry-After of %v", i+1, a.o.Rounds, wait))
	if err := rest(ctx, time.Until(end)+slackFor); err != nil {
		return err
	}
	p, err := a.ask(ctx)
	if err != nil {
		return err
	}
	r.InTime, r.InTimeAdmitted = true, !p.denied()
	// A reset at the same time was tested by that request.
	if w, ok := tightest(denial); ok && w.Reset > 0 && w.Reset <= wait && r.reset == nil {
		r.resets(w, &p)
	}
	return nil
}

// resets notes what a request found when a limit was to be free again.
func (r *AuditRound) resets(w outbound.Window, p *probe) {
	if p.denied() {
		r.reset = &resetTried{wait: w.Reset, limit: w.Limit, remaining: -1}
		return
	}
	for _, again := range p.hint.Windows {
		if again.Limit == w.Limit {
			r.reset = &resetTried{wait: w.Reset, limit: w.Limit, remaining: again.Remaining}
			return
		}
	}
}

// reset waits until the limit is free again, as a denial says, and finds out whether it is.
func (a *auditor) reset(ctx context.Context, r *AuditRound, denial *probe) error {
	w, ok := tightest(denial)
	if !ok || w.Reset <= 0 || w.Reset > a.o.Patience || r.reset != nil {
		return nil
	}
	a.o.Told(fmt.Sprintf("waiting for a reset in %v", w.Reset))
	if err := rest(ctx, time.Until(denial.at.Add(w.Reset+slackFor))); err != nil {
		return err
	}
	after, err := a.ask(ctx)
	if err != nil {
		return err
	}
	r.resets(w, &after)
	return nil
}

// conclude makes findings of the rounds.
func conclude(rounds []AuditRound) *Audit {
	a := &Audit{Rounds: rounds, Honest: true}
	for _, find := range []func([]AuditRound) Finding{findDenial, findRetry, findRemaining, findReset} {
		f := find(rounds)
		a.Honest = a.Honest && f.Outcome != Wrong
		a.Findings = append(a.Findings, f)
	}
	return a
}

func findDenial(rounds []AuditRound) Finding {
	f := Finding{About: "admitted", Outcome: Unknown, Text: "no request was denied"}
	most, wrong := 0, ""
	for i := range rounds {
		r := &rounds[i]
		most = max(most, r.Admitted)
		if r.Denied == "" {
			f.Text = fmt.Sprintf("no request was denied, of %d", most)
			continue
		}
		if f.Outcome == Unknown {
			f.Outcome = True
		}
		if r.understated > 0 {
			wrong = fmt.Sprintf("%d were admitted, of which the answers advertised less: the first said that %d of %d were left", r.Admitted, r.Remaining, r.Limit)
		}
	}
	switch {
	case wrong != "":
		f.Outcome, f.Text = Wrong, wrong
	case f.Outcome == True && rounds[0].Limit < 0:
		f.Outcome, f.Text = Unknown, fmt.Sprintf("%d were admitted before the first denial; no answer says how many may be", rounds[0].Admitted)
	case f.Outcome == True:
		f.Text = fmt.Sprintf("%d were admitted before the first denial; the limit advertised is %d, of which %d were left at first", rounds[0].Admitted, rounds[0].Limit, rounds[0].Remaining)
	}
	return f
}

func findRetry(rounds []AuditRound) Finding {
	f := Finding{About: "retry_after", Outcome: Unknown, Text: "there was no denial that says when to come again"}
	tried, lies, earlier, early := 0, 0, 0, 0
	for i := range rounds {
		r := &rounds[i]
		if r.RetryAfterMS > 0 && !r.InTime {
			f.Text = fmt.Sprintf("a denial said to wait for %.1f s, which is longer than the audit waits", r.RetryAfterMS/1000)
		}
		if r.InTime {
			tried++
			if !r.InTimeAdmitted {
				lies++
			}
		}
		if r.Earlier {
			earlier++
			if r.EarlierAdmitted {
				early++
			}
		}
	}
	switch {
	case tried > 0 && lies > 0:
		f.Outcome, f.Text = Wrong, fmt.Sprintf("in %d of %d rounds a request was denied when the time of Retry-After was over", lies, tried)
	case tried > 0:
		f.Outcome, f.Text = True, fmt.Sprintf("in %d rounds a request was admitted when the time of Retry-After was over", tried)
		if early > 0 {
			f.Text += fmt.Sprintf("; in %d of %d, halfway as well: clients wait for longer than they need to", early, earlier)
		}
	}
	return f
}

func findRemaining(rounds []AuditRound) Finding {
	f := Finding{About: "remaining", Outcome: Unknown, Text: "no answer says what is left"}
	over, answers := 0, 0
	for i := range rounds {
		r := &rounds[i]
		if r.Remaining < 0 || r.Denied == "" {
			continue
		}
		over += r.overstated
		answers += r.Admitted
	}
	switch {
	case over > 0:
		f.Outcome, f.Text = Wrong, fmt.Sprintf("%d of %d answers said that more was left than was admitted after them", over, answers)
	case answers > 0:
		f.Outcome, f.Text = True, fmt.Sprintf("what %d answers said was left, was admitted after them", answers)
	}
	return f
}

func findReset(rounds []AuditRound) Finding {
	f := Finding{About: "reset", Outcome: Unknown, Text: "no answer says when the limit is free again, or it is too long to wait for"}
	for i := range rounds {
		t := rounds[i].reset
		switch {
		case t == nil:
			continue
		case t.remaining < 0:
			f.Outcome, f.Text = Wrong, fmt.Sprintf("when the time of reset, %v, was over, a request was denied", t.wait)
			return f
		}
		f.Outcome, f.Text = True, fmt.Sprintf("when the time of reset, %v, was over, a request was admitted, and %d of %d were left", t.wait, t.remaining, t.limit)
	}
	return f
}
