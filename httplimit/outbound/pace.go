package outbound

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// pace is how fast calls are sent to a partner that has refused some for want of quota, and asks for
// short pauses. It is learnt from when the partner refuses. The zero pace bounds nothing.
type pace struct {
	Base  float64       `json:"base"`  // calls a second after the last refusal; 0 bounds nothing
	Known bool          `json:"known"` // Base is near what the partner admits, and not only below it
	Unit  time.Duration `json:"unit"`  // how long the last pause was, but 1 to 2 s
	Hold  float64       `json:"hold"`  // for how many units a known Base holds; 0 means the most
	Level float64       `json:"level"` // what was admitted a second before Base became much less
	Down  bool          `json:"down"`  // nothing was admitted between the last two pauses
	Up    bool          `json:"up"`    // some call was admitted since

	Ends headgate.Instant `json:"ends"` // when the last pause ended, by the store's clock; 0 without one
	From time.Time        `json:"-"`    // the same by the process's clock
}

const (
	// shortPause is the longest pause from which a pace is learnt. Whoever asks for a longer one counts
	// in longer windows, of which each can be used at once. One of 10 s gets as much either way.
	shortPause = 10 * time.Second
	// safe is the part of what the partner was found to admit at which calls are sent.
	safe = 0.97
	// A known rate holds for maxHold units: each refusal costs a pause, so it must not come much oftener.
	// Where the partner has admitted more than twice as much before, it holds for minHold pauses, and for
	// twice as long each time that no more was admitted then.
	minHold, maxHold = 4, 30
	// The first rate that is known holds for firstHold units after a pause of 1 s: growing quickly, it was too high by
	// much when it was refused, and is taken for less than the partner admits. A pause that is longer is not worth it.
	firstHold = 8
	// probing is by which factor the rate grows in each of the next probes units. Who is refused then
	// admits little more than the rate.
	probing, probes = 1.05, 8
	// A rate that held grows by climbing at most if it seems to be nearly what the partner admits, by less than
	// climbed: one that is too high costs a further pause.
	climbing, climbed = 1.01, 1.06
	// seeking is by which factor the rate grows in a unit from there on, and while it is not known what
	// the partner admits. After so many of these units nothing is bounded any more.
	seeking, forgotten = 4, 20
	// While nothing is admitted, calls begin with few after each pause, and it takes finding units until as
	// many are sent as before. Once one is admitted, as many are sent at once.
	finding = 3
)

// stretch is a part of the time since the last pause, in which the rate grows evenly.
type stretch struct {
	rate   float64 // calls a second when it begins
	growth float64 // by which part of it the rate grows in a second
	rest   float64 // how many seconds it lasts
}

// ahead yields the stretches from then on. After the last one, nothing is bounded.
func (p *pace) ahead(from time.Time) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		if p.Base == 0 {
			return
		}
		var finds, holds, probed float64 // for how many units
		rate, unit := p.Base, p.Unit.Seconds()
		if p.Down && !p.Up {
			finds, rate = finding, rate*math.Pow(seeking, -finding)
		}
		if p.Known {
			holds, probed = p.holds(), probes
		}
		units := max(from.Sub(p.From).Seconds()/unit, 0)
		for _, s := range [...]struct{ units, factor float64 }{{finds, seeking}, {holds, 1}, {probed, probing}, {forgotten, seeking}} {
			gone := min(units, s.units)
			units -= gone
			if gone < s.units && !yield(stretch{rate * math.Pow(s.factor, gone), math.Log(s.factor) / unit, (s.units - gone) * unit}) {
				return
			}
			rate *= math.Pow(s.factor, s.units)
		}
	}
}

func (p *pace) holds() float64 {
	if p.Hold <= 0 || p.Hold > maxHold {
		return maxHold
	}
	return p.Hold
}

// rate returns how many calls may be sent in a second, and by which part of it that grows in a second.
// Zero stands for any number.
func (p *pace) rate(now time.Time) (rate, growth float64) {
	for s := range p.ahead(now) {
		return s.rate, s.growth
	}
	return 0, 0
}

// next returns the time after which so many more calls may have been sent than at the given time, if
// nothing is refused until then.
func (p *pace) next(from time.Time, calls float64) time.Duration {
	wait := 0.0
	for s := range p.ahead(from) {
		took, most := calls/s.rate, s.rate*s.rest
		if s.growth > 0 {
			took, most = math.Log1p(calls*s.growth/s.rate)/s.growth, s.rate*math.Expm1(s.growth*s.rest)/s.growth
		}
		if took <= s.rest {
			return seconds(wait + took)
		}
		wait += s.rest
		calls -= most
	}
	return seconds(wait)
}

// run is what a process has seen since the last pause.
type run struct {
	sent     float64   // how many calls were sent
	first    time.Time // when the first of them was
	accepted float64   // how many were accepted
	bound    time.Time // when a call had to wait for its turn last
}

// sending is when a call was sent, and how many were sent before it since the last pause.
type sending struct {
	at     time.Time
	before float64
}

// refused takes in that the partner refuses calls from now on, until the pause ends. sent is the one that was
// refused. Those before it have been accepted, even if none was answered yet: it takes longer to do
// something than to refuse it. But those that were sent just before it may be refused in a moment.
func (p *pace) refused(seen *run, sent sending, now time.Time, pause time.Duration) {
	accepted := seen.accepted
	if accepted == 0 && (p.Base == 0 || now.Sub(seen.first) > 2*now.Sub(sent.at)) {
		accepted = min(sent.before, seen.sent)
	}
	if p.Up {
		accepted = max(accepted, 1)
	}
	p.Up = accepted > 0
	bound := !seen.bound.IsZero()
	at := now
	if bound {
		at = seen.bound // Since then, calls have come more slowly than the rate.
	}
	rate, growth := p.rate(at)
	was, units := *p, now.Sub(p.From).Seconds()/p.Unit.Seconds()
	t := max(now.Sub(p.From).Seconds(), 1e-3)
	switch {
	case accepted == 0:
		// All are refused for now, whatever the rate.
	case rate > 0 && !p.Known && units < 0.5:
		p.Base = rate / 2 // Too early to tell.
	case rate > 0 && bound:
		// Some call more than the partner admits was sent since the pause, or since the rate has
		// grown above what the partner admits.
		over, most := max(1/t, math.Sqrt(2*growth*rate)), rate/2
		switch {
		case units < 2:
			over = max(over, rate/8)
		case p.Known && units <= p.holds()+probes:
			most = rate / 20
		}
		p.Base, p.Known = safe*(rate-min(over, most)), true
		switch {
		case was.Known && units >= was.holds():
			// What was admitted for so long is admitted.
			admitted := was.Base
			if units > was.holds()+probes {
				admitted *= safe * math.Pow(probing, probes)
			}
			if p.Base = max(p.Base, admitted); p.Base < climbed*admitted {
				p.Base = min(p.Base, climbing*admitted)
			}
			p.Hold, p.Level = min(2*was.holds(), maxHold), p.Base
		case p.Base < p.Level/2:
			p.Hold, p.Level = min(max(minHold*pause.Seconds()/p.Unit.Seconds(), minHold), maxHold), p.Base
		case !was.Known:
			p.Hold = min(max(firstHold*pause.Seconds(), minHold), maxHold)
		}
	default:
		// How much the partner admits is not known, but it is at least what it has.
		p.Base, p.Known = max(accepted/(now.Sub(seen.first)+pause).Seconds(), min(rate/2, p.Level)), false
	}
	p.Down, p.Up = accepted == 0, false
	p.Level = max(p.Level, p.Base)
	p.Unit = min(max(pause, time.Second), 2*time.Second)
	p.From = now.Add(pause)
}

// paceName is the name of the rule, and of the document, by which processes keep to a pace together.
const paceName = "headgate.outbound.pace"

// slack is how much closer than the pace calls may come. It is a time, and no part of the pace: a partner that takes one
// call at a time refuses the second of two that come a quarter closer.
const slack = 5 * time.Millisecond

// keptFor is how long the store keeps a pace. It is of use for so long only if an outage lasts as long.
const keptFor = 24 * time.Hour

// paceEvery is how often a process reads the pace while it makes calls.
const paceEvery = 5 * time.Second

// common returns the checks by which all processes keep to the pauses and to the pace. The one for the pace is missing
// if there is none, or if each process has its own. Its unit is a microsecond, as in pauseRule: a call uses up as many
// as are between two calls, so one counter serves all paces.
func (c *call) common(now time.Time) (checks []headgate.Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(c.deaf) {
		checks = append(checks, headgate.Check{Rule: callRule, Key: c.name})
	}
	gap := c.pace.next(now, 1).Microseconds()
	if c.t.documents == nil || gap == 0 {
		return checks
	}
	// Some may come close together, because they do not take the same time to the store.
	if burst := gap + slack.Microseconds(); c.rule == nil || c.rule.Limits()[0].Burst != burst {
		c.rule = headgate.MustRule(paceName, headgate.Limit{Count: 1_000_000, Period: time.Second, Burst: burst})
	}
	return append(checks, headgate.Check{Rule: c.rule, Key: c.name, Cost: gap})
}

// fetchPace reads the pace. The zero pace stands for none, and for what cannot be read.
func (c *call) fetchPace(ctx context.Context) (pace, store.Document, error) {
	d, err := c.t.documents.ReadDocument(ctx, paceName+" "+c.name)
	if err != nil || len(d.Value) == 0 {
		return pace{}, d, err
	}
	var p pace
	if err := json.Unmarshal(d.Value, &p); err != nil || p.Base < 0 || p.Unit <= 0 {
		return pace{}, d, nil // It is another program's, and written anew.
	}
	left := time.Duration(p.Ends-d.Now) * time.Microsecond
	if left > shortPause {
		left = 0 // The store's clock has stepped back.
	}
	p.From = time.Now().Add(left)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Ends == c.pace.Ends {
		p.From = c.pace.From // An outage may have lasted since.
	}
	return p, d, nil
}

// readPace reads the pace if that was not done for so long.
func (c *call) readPace(ctx context.Context, now time.Time, every time.Duration) {
	if c.t.documents == nil {
		return
	}
	c.mu.Lock()
	due := now.Sub(c.read) >= every
	if due {
		c.read = now
	}
	c.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	switch p, d, err := c.fetchPace(ctx); {
	case err == nil:
		c.adopt(p, d.Version, time.Now())
	case c.ctx.Err() == nil:
		c.failed(err)
	}
}

// adopt keeps to a pace from now on.
func (p *partner) adopt(to pace, version string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version == version {
		return
	}
	again := to.Ends == p.pace.Ends
	p.version, p.pace = version, to
	if again {
		p.sooner(now)
		return
	}
	p.seen, p.next = run{}, to.From
	p.line.move(now)
}

// learnPace takes in that the partner refuses calls, for all processes.
func (c *call) learnPace(ctx context.Context, sent sending, now time.Time, pause time.Duration) {
	for {
		p, d, err := c.fetchPace(ctx)
		if err != nil {
			c.failed(err)
			c.refused(sent, now, pause, "") // This process learns for itself until the store is back.
			return
		}
		c.mu.Lock()
		if sent.at.Before(p.From) && (p.Base > 0 || c.seen.accepted == 0 && sent.before == 0) {
			c.mu.Unlock()
			c.adopt(p, d.Version, time.Now()) // Another process was refused first.
			return
		}
		p.refused(&c.seen, sent, now, pause)
		c.mu.Unlock()
		p.Ends = d.Now + headgate.Instant(time.Until(p.From).Microseconds())
		switch written, err := c.keepPace(ctx, p, d); {
		case err != nil:
			c.refused(sent, now, pause, d.Version) // The store can be read, but it is full, or a replica.
			return
		case written:
			c.readPace(ctx, now, 0)
			return
		}
	}
}

// keepPace writes the pace that replaces what was read, unless another one has replaced it.
func (c *call) keepPace(ctx context.Context, p pace, was store.Document) (written bool, err error) {
	value, err := json.Marshal(p)
	if err == nil {
		written, err = c.t.documents.WriteDocument(ctx, was, value, keptFor)
	}
	if err != nil {
		c.failed(err)
	}
	return written, err
}

// tellUp tells the other processes that a call was admitted since the last pause.
func (c *call) tellUp(ctx context.Context) {
	for {
		p, d, err := c.fetchPace(ctx)
		if err != nil {
			c.failed(err)
			return
		}
		if p.Base == 0 || p.Up || p.From.After(time.Now()) {
			c.adopt(p, d.Version, time.Now())
			return // Another process was first, or was refused meanwhile.
		}
		// While all were rejected, the rate has not grown in any process.
		p.Up, p.Ends = true, d.Now+headgate.Instant(time.Until(p.From).Microseconds())
		if written, err := c.keepPace(ctx, p, d); written || err != nil {
			c.readPace(ctx, time.Now(), 0)
			return
		}
	}
}
