package load

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sleep"
)

// AuditOptions say how a limiter is audited.
type AuditOptions struct {
	// Rounds is how many times the limiter is brought to a denial. Zero means 3.
	Rounds int
	// Most is the maximum number of requests in a round. Zero means 10,000.
	Most int
	// Patience is the longest announced wait that the audit waits for. Zero means two minutes.
	Patience time.Duration
	// Limit is what the limiter should hold. If it is the zero value, the audit looks for a limit
	// that explains what it sees, unless the answers name one.
	Limit Promise
	// Cost is how many units of Limit a request takes. Zero means 1.
	Cost int64
	// Watch is how long the limiter is kept busy with Limit, at least. Zero means until it was seen
	// to become free several times.
	Watch time.Duration
	// Denied are further answers that are denials, by the code under which a [Measurement] counts them,
	// such as 403 or PERMISSION_DENIED. 429 and RESOURCE_EXHAUSTED always are.
	Denied []string
	// Undecided are answers that say nothing of the limiter, such as 401 of what stands in front of it:
	// it may have charged the request or not have seen it. Without them, it has admitted what was
	// answered with any other status from 400 to 499, because what is behind it has refused it.
	Undecided []string
	// Progress is called with a text about each step. It may be nil.
	Progress func(string)
}

// Audit compares what a limiter says with what it does. All requests come from one client.
type Audit struct {
	// Honest is true if nothing that the limiter said was found to be wrong.
	Honest bool `json:"honest"`
	// Findings are the results, in order.
	Findings []Finding `json:"findings"`
	// Rounds are what happened, round by round.
	Rounds []AuditRound `json:"rounds"`
	// Held is how the limiter behaved while it was kept busy; nil if it was not.
	Held *Held `json:"held,omitempty"`
	// Dialect is where answers said something of the limit, such as Retry-After and X-RateLimit-*.
	Dialect []string `json:"dialect"`
}

// Held is how a limiter that was kept busy compares with an algorithm.
type Held struct {
	// Algorithm and Limit are what explains most of what was seen; Algorithm is empty if nothing
	// does. Given says that the limit was given.
	Algorithm string  `json:"algorithm"`
	Limit     Promise `json:"limit"`
	Given     bool    `json:"given"`
	// Admitted and Denied are how many requests were. Over are the admissions beyond the limit,
	// and Early the denials for which there was room.
	Admitted int `json:"admitted"`
	Denied   int `json:"denied"`
	Over     int `json:"over"`
	Early    int `json:"early"`
	// RetryShortMS and RetryLongMS are the largest errors of the announced waits, of Compared.
	RetryShortMS float64 `json:"retry_short_ms"`
	RetryLongMS  float64 `json:"retry_long_ms"`
	Compared     int     `json:"retry_compared"`
	// OverAt is when the first and EarlyAt when the first of these were, since the beginning.
	OverAt  float64 `json:"first_over_ms"`
	EarlyAt float64 `json:"first_early_ms"`
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

	last        string // the status of the last request that was not denied
	overstated  int    // answers that promised more than was admitted
	understated int    // answers that promised less, by more than time can explain
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
	hint      Hint
	at        time.Time // when it was sent
	end       time.Time // when it was answered
	denied    bool      // by the limiter
	undecided bool      // it says nothing of the limiter
	unsure    bool      // such answers came before it, so that more may have been charged
}

// Audit brings the limiter of the first target to a denial several times, one request after the
// other, and compares what it says with what it does. It takes as long as the waits that the
// limiter announces. The error is the context's, or says that the target did not answer.
func (c *Client) Audit(ctx context.Context, o AuditOptions) (*Audit, error) {
	o.Rounds, o.Most, o.Patience = cmp.Or(o.Rounds, 3), cmp.Or(o.Most, 10_000), cmp.Or(o.Patience, 2*time.Minute)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Cost = cmp.Or(o.Cost, 1)
	a := &auditor{client: c, o: &o, began: time.Now(), senders: []sender{c.sender()}, spoken: make(map[string]bool)}
	defer func() { c.idle = append(c.idle, a.senders...) }()
	found, err := a.audit(ctx)
	if found != nil {
		found.Dialect = slices.Sorted(maps.Keys(a.spoken))
	}
	return found, err
}

// audit audits. There may be a part of an audit even if there is an error.
func (a *auditor) audit(ctx context.Context) (*Audit, error) {
	var rounds []AuditRound
	for i := range a.o.Rounds {
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
	last := len(rounds) - 1
	audit := conclude(rounds)
	silent := rounds[0].Limit < 0 && rounds[0].RetryAfterMS < 0 && (rounds[last].Denied != "" || a.slow(&rounds[last]))
	if a.o.Limit.Count == 0 && a.o.Watch == 0 && !silent {
		return audit, nil
	}
	a.o.Progress("keeping the limiter busy, to see when it becomes free")
	if err := a.watch(ctx); err != nil {
		return audit, err
	}
	a.judge(audit)
	return audit, nil
}

// auditor audits.
type auditor struct {
	client *Client
	o      *AuditOptions
	began  time.Time
	refuse string // the status of denials
	seen   []decision
	busy   time.Duration // since when it is kept busy
	spoken map[string]bool
	lost   []decision // those of which nothing was heard

	senders []sender // as many as were needed at once
}

// mostUndecided is how many answers in a row may say nothing of the limiter.
const mostUndecided = 100

// ask sends one request, and notes what was decided. If the answer does not say that, it asks again.
func (a *auditor) ask(ctx context.Context) (probe, error) {
	for n := 0; ; n++ {
		p, err := a.send(ctx, a.senders[0])
		if err != nil {
			return p, err
		}
		a.note(&p)
		if p.unsure = n > 0; !p.undecided {
			return p, nil
		}
		if n == mostUndecided {
			return p, fmt.Errorf("%w: the last %d answers were %s and the like, which say nothing of the limiter", ErrUnreachable, n, p.code)
		}
	}
}

// passed reports whether the limiter has let a request through. What is behind it may refuse it, but
// a server that fails may not have got that far.
func (p *probe) passed() bool {
	return !p.undecided && (p.kind == served || p.kind == failed && p.class == "4xx")
}

// note notes what was decided.
func (a *auditor) note(p *probe) {
	p.dialect(a.spoken)
	if denied := p.denied || p.code == a.refuse; denied || p.passed() {
		d := decision{p.at.Sub(a.began), p.end.Sub(a.began), !denied, p.hint.Wait}
		if d.wait > a.o.Patience {
			d.wait = 0 // The audit does not see its end.
		}
		a.seen = append(a.seen, d)
		return
	}
	a.lose(p)
}

// lose notes a request that failed. The limiter may have charged it.
func (a *auditor) lose(p *probe) {
	a.lost = append(a.lost, decision{sent: p.at.Sub(a.began), answered: p.end.Sub(a.began)})
}

// dialect notes where an answer says something of the limit.
func (p *probe) dialect(spoken map[string]bool) {
	if m := p.inMessage; m != nil {
		if m.Wait > 0 || len(m.Windows) > 0 {
			spoken["the message"] = true
		}
		return
	}
	for name, of := range map[string]string{
		"Retry-After": "Retry-After", "Retry-After-Ms": "Retry-After-Ms", "Ratelimit-Remaining": "RateLimit-*", "X-Ratelimit-Remaining": "X-RateLimit-*", "X-Rate-Limit-Remaining": "X-Rate-Limit-*",
	} {
		if p.header.Get(name) != "" {
			spoken[of] = true
		}
	}
	if text := p.header.Get("Ratelimit"); strings.Contains(text, "remaining=") {
		spoken["RateLimit (draft 7)"] = true
	} else if text != "" {
		spoken["RateLimit (draft 8 and later)"] = true
	}
}

// send sends one request.
func (a *auditor) send(ctx context.Context, s sender) (p probe, err error) {
	p.at = time.Now()
	p.answer = s.send(ctx, a.client.options.Targets[0], p.at.Add(a.client.options.Timeout))
	p.end = time.Now()
	if p.kind == abandoned {
		return p, context.Cause(ctx)
	}
	if p.kind > failed {
		return p, fmt.Errorf("%w: there was no answer: %s", ErrUnreachable, p.code)
	}
	p.hint = p.answer.hint()
	p.undecided = slices.Contains(a.o.Undecided, p.code)
	p.denied = !p.undecided && (p.kind == limited || p.hint.Limited || slices.Contains(a.o.Denied, p.code))
	return p, nil
}

// round sends requests until one is denied, and then waits until the limiter says that there is
// room.
func (a *auditor) round(ctx context.Context, i int) (*AuditRound, error) {
	a.o.Progress(fmt.Sprintf("round %d of %d: sending requests until one is denied", i+1, a.o.Rounds))
	r := &AuditRound{Limit: -1, Remaining: -1, RetryAfterMS: -1}
	began := time.Now()
	var seen []probe
	var last probe
	unsure := false
	for range a.o.Most {
		p, err := a.ask(ctx)
		if err != nil {
			return r, err
		}
		last = p
		// Some limiters refuse like a server that is overloaded; nginx does unless it is told otherwise.
		unsure = unsure || p.unsure
		if p.denied || p.status == http.StatusServiceUnavailable && (len(seen) > 0 || p.code == a.refuse) {
			if a.refuse = p.code; !p.denied && i == 0 {
				a.note(&p) // It was not known yet that this is a denial.
			}
			r.Denied = p.code
			break
		}
		seen = append(seen, p)
		r.last = p.code
		if r.Admitted, r.PassedMS = len(seen), ms(p.end.Sub(began)); a.slow(r) && len(p.hint.Windows) == 0 {
			break
		}
	}
	r.Admitted, r.PassedMS = len(seen), ms(last.end.Sub(began))
	if len(seen) > 0 {
		if w, ok := tightest(&seen[0]); ok {
			r.Limit, r.Remaining = w.Limit, w.Remaining
		}
	}
	if r.Denied == "" {
		return r, nil
	}
	if !unsure {
		r.compare(seen, last.at, a.o.Cost)
	}
	if err := a.retry(ctx, r, &last, i); err != nil {
		return r, err
	}
	return r, a.reset(ctx, r, &last)
}

// tightest returns the limit with the fewest units left. It returns false if the answer names no
// limit.
func tightest(p *probe) (least Window, ok bool) {
	for _, w := range p.hint.Windows {
		if !ok || w.Remaining < least.Remaining {
			least, ok = w, true
		}
	}
	return least, ok
}

// compare compares what each answer promised to what was admitted after it.
func (r *AuditRound) compare(seen []probe, denied time.Time, cost int64) {
	for i := range seen {
		w, ok := tightest(&seen[i])
		if !ok {
			continue
		}
		after := int64(len(seen)-1-i) * cost
		if w.Remaining > after+cost-1 {
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
		if after > w.Remaining+free+cost {
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
		a.o.Progress(fmt.Sprintf("round %d of %d: trying before a Retry-After of %v is over", i+1, a.o.Rounds, wait))
		early := wait / 2
		w, ok := tightest(denial)
		sooner := ok && w.Reset > 0 && w.Reset < wait-time.Second
		if sooner {
			early = w.Reset + slackFor
		}
		if !sleep.For(ctx, early) {
			return ctx.Err()
		}
		p, err := a.ask(ctx)
		if err != nil {
			return err
		}
		if p.unsure {
			return nil // What is found after it may be for units that only those requests have taken.
		}
		if r.Earlier, r.EarlierAdmitted = true, !p.denied; sooner && p.denied {
			r.reset = &resetTried{wait: w.Reset, limit: w.Limit, remaining: -1}
		}
		if r.EarlierAdmitted {
			return nil // It has taken the units that were to be there at the end.
		}
	}
	a.o.Progress(fmt.Sprintf("round %d of %d: waiting for the end of a Retry-After of %v", i+1, a.o.Rounds, wait))
	if !sleep.For(ctx, time.Until(end)+slackFor) {
		return ctx.Err()
	}
	p, err := a.ask(ctx)
	if err != nil {
		return err
	}
	if p.unsure {
		return nil
	}
	r.InTime, r.InTimeAdmitted = true, !p.denied
	// A reset at the same time was tested by that request.
	if w, ok := tightest(denial); ok && w.Reset > 0 && w.Reset <= wait && r.reset == nil {
		r.resets(w, &p)
	}
	return nil
}

// resets notes what a request found when a limit was to be free again.
func (r *AuditRound) resets(w Window, p *probe) {
	if p.denied {
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

// reset waits until the limit is free again, as a denial says, and finds out whether it is. The time
// counts from the answer: the limiter may have decided at any instant before.
func (a *auditor) reset(ctx context.Context, r *AuditRound, denial *probe) error {
	w, ok := tightest(denial)
	if !ok || w.Reset <= 0 || w.Reset > a.o.Patience || r.reset != nil {
		return nil
	}
	a.o.Progress(fmt.Sprintf("waiting for a reset in %v", w.Reset))
	if !sleep.For(ctx, time.Until(denial.end.Add(w.Reset+slackFor))) {
		return ctx.Err()
	}
	after, err := a.ask(ctx)
	if err != nil {
		return err
	}
	if !after.unsure {
		r.resets(w, &after)
	}
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
			f.Text = fmt.Sprintf("no request was denied, of %d; the last was answered with %s", most, r.last)
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
		if r.RetryAfterMS > 0 && !r.InTime && !r.EarlierAdmitted {
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

// slow reports whether a round's requests were answered so slowly that a limiter may delay them.
func (a *auditor) slow(r *AuditRound) bool {
	const long, each = 3000, 10 // milliseconds
	return r.Denied == "" && r.PassedMS >= long && r.PassedMS/float64(max(r.Admitted, 1)) >= each
}

// The volleys by which a limiter is kept busy.
const (
	smallest = 4
	largest  = 256
	mostSeen = 20_000
	shortest = 2 * time.Second
	idle     = 30 * time.Second     // for how long nothing may become free
	pause    = 5 * time.Millisecond // between volleys, at first
)

// watch keeps the limiter busy, with several requests at once, so that whatever it admits it
// admits at the earliest instant.
func (a *auditor) watch(ctx context.Context) error {
	volley, busiest, begun, free := smallest, smallest, time.Now(), 0
	a.busy = begun.Sub(a.began)
	denied := true // by the volley before
	for len(a.seen) < mostSeen {
		n := len(a.seen)
		if err := a.volley(ctx, min(volley, a.client.options.Connections)); err != nil {
			return err
		}
		admitted := 0
		for _, d := range a.seen[n:] {
			if d.admitted {
				admitted++
			}
		}
		sent := len(a.seen) - n
		if denied && admitted > 0 {
			free++
		}
		if admitted < sent {
			denied = true
		} else if sent > 0 {
			denied = false
		}
		passed := time.Since(begun)
		if free == 0 && passed >= max(idle, a.o.Watch, a.o.Limit.settled()) {
			break // It is not worth waiting for.
		}
		if free > enough && passed >= max(a.o.Watch, shortest, a.o.Limit.settled()) || passed >= max(a.o.Patience, a.o.Watch) {
			break
		}
		switch {
		case admitted == 0:
			volley = 1 // One is enough to see that it is not free yet.
		case volley == 1:
			volley = busiest
		case admitted == sent:
			volley = min(2*volley, largest)
			busiest = volley
		}
		if admitted > 0 {
			continue
		}
		if !sleep.For(ctx, min(max(pause, passed/50), 250*time.Millisecond)) {
			return ctx.Err()
		}
	}
	return nil
}

// volley sends several requests at once. Those that are not answered are left out: the service, or
// the store under it, may be starting again.
func (a *auditor) volley(ctx context.Context, n int) error {
	for len(a.senders) < n {
		a.senders = append(a.senders, a.client.sender())
	}
	probes, errs := make([]probe, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { probes[i], errs[i] = a.send(ctx, a.senders[i]) })
	}
	all.Wait()
	for i := range probes {
		if a.refuse == "" && errs[i] == nil && probes[i].status == http.StatusServiceUnavailable && len(a.seen) > 0 {
			a.refuse = probes[i].code // as in a round
		}
	}
	for i := range probes {
		if errs[i] == nil {
			a.note(&probes[i])
		} else {
			a.lose(&probes[i])
		}
	}
	return context.Cause(ctx)
}

// judge compares all that was decided with the algorithms.
func (a *auditor) judge(audit *Audit) {
	h := newHistory(a.seen, time.Duration(a.began.UnixNano()))
	held := &Held{Given: a.o.Limit.Count > 0, Admitted: len(h.admitted), Denied: len(h.denied)}
	audit.Held = held
	h.forgive(a.lost, a.o.Limit.kept())
	var c conduct
	found := true
	if held.Given {
		held.Limit = a.o.Limit
		held.Limit.cost = a.o.Cost
		c = h.closest(held.Limit)
	} else {
		c, found = h.guess(a.busy)
		held.Limit = c.promise
	}
	held.Algorithm, held.Over, held.Early = c.algorithm, len(c.over), len(c.early)
	if c.over != nil {
		held.OverAt = ms(c.over[0])
	}
	if c.early != nil {
		held.EarlyAt = ms(c.early[0])
	}
	short, long, compared := h.retryErrors()
	held.RetryShortMS, held.RetryLongMS, held.Compared = ms(short), ms(long), compared
	for i := range audit.Findings {
		f := &audit.Findings[i]
		switch {
		case f.About == "admitted" && f.Outcome != Wrong:
			held.admitted(f, found)
			if seen := time.Since(a.began); held.Given && f.Outcome == True && seen < a.o.Limit.settled() {
				f.Outcome = Unknown
				f.Text += fmt.Sprintf("; but it was watched for %v only: --watch %v would settle it", seen.Round(time.Second), a.o.Limit.settled())
			}
		case f.About == "retry_after" && f.Outcome != Wrong && compared > 0:
			held.retry(f, short, long)
		}
	}
	if held.Given {
		audit.Findings = append(audit.Findings, held.early())
	}
	audit.Honest = true
	for i := range audit.Findings {
		audit.Honest = audit.Honest && audit.Findings[i].Outcome != Wrong
	}
}

// admitted says whether more was admitted than the limit allows.
func (h *Held) admitted(f *Finding, found bool) {
	switch {
	case h.Denied == 0:
		return
	case h.Given && h.Over > 0:
		f.Outcome = Wrong
		f.Text = fmt.Sprintf("%d of %d admissions are beyond %v, counted as a %s; the first came %.1f s after the beginning", h.Over, h.Admitted, h.Limit, h.Algorithm, h.OverAt/1000)
	case h.Given:
		f.Outcome = True
		f.Text = fmt.Sprintf("%d were admitted and %d denied; %v was never exceeded, counted as a %s", h.Admitted, h.Denied, h.Limit, h.Algorithm)
	case found:
		f.Outcome = True
		f.Text = fmt.Sprintf("%d were admitted and %d denied, as a %s of %s does", h.Admitted, h.Denied, h.Algorithm, h.Limit.seen())
	default:
		f.Text = fmt.Sprintf("%d were admitted and %d denied", h.Admitted, h.Denied) + "; none of the algorithms that the audit knows explains when requests were admitted; --limit says what to compare with, and --watch for how long"
	}
}

// early says whether requests were denied for which there was room.
func (h *Held) early() Finding {
	f := Finding{About: "denied_early", Outcome: True, Text: fmt.Sprintf("there was room for none of %d denied requests", h.Denied)}
	switch {
	case h.Denied == 0:
		f.Outcome, f.Text = Unknown, "no request was denied"
	case h.Early > 0:
		f.Outcome = Wrong
		f.Text = fmt.Sprintf("there was room for %d of %d denied requests, counted as a %s of %v; for the first %.1f s after the beginning", h.Early, h.Denied, h.Algorithm, h.Limit, h.EarlyAt/1000)
	}
	return f
}

// retry judges the announced waits by when requests were admitted. Whole seconds may be rounded up.
func (h *Held) retry(f *Finding, short, long time.Duration) {
	f.Outcome = True
	f.Text = fmt.Sprintf("%d waits were compared with the next admission: at most %v too short and %v too long", h.Compared, short.Round(time.Millisecond), long.Round(time.Millisecond))
	if short > slackFor || long > time.Second+slackFor {
		f.Outcome = Wrong
	}
}
