package replay

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/policy/footprint"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/tune/accesslog"
)

// Result is the result of a replay. Its JSON is the output of "headgate replay --json".
type Result struct {
	// Requests is how many requests were decided and counted: Admitted and Denied
	// together.
	Requests int64 `json:"requests"`
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	// Unreadable is how many lines of the log could not be read.
	Unreadable int64 `json:"unreadable"`
	// Rules are those of the policy, in its order.
	Rules []Rule `json:"rules"`
	// Clients are those with denied requests, the worst first.
	Clients []Client `json:"clients"`

	// Interval is the lowest and the highest number of denied requests that the times in the log
	// allow.
	Interval Interval `json:"interval"`
	// Delayed is how many of the admitted requests are delayed, and for how long.
	Delayed        int64 `json:"delayed"`
	MeanDelayMS    int64 `json:"mean_delay_ms"`
	LongestDelayMS int64 `json:"longest_delay_ms"`
	// DeniedBy has the requests that no limit denies: those denied by entries of the deny list, and
	// "refused", which no door could have decided.
	DeniedBy []Listed `json:"denied_by_lists,omitempty"`

	// ClientsSeen is how many clients there are, ClientsDenied how many of them had
	// requests denied.
	ClientsSeen   int `json:"clients_seen"`
	ClientsDenied int `json:"clients_denied"`
	// ClientsBeyond is how many requests came from clients beyond [MaxClients], which are not
	// distinguished.
	ClientsBeyond int64 `json:"requests_of_clients_beyond"`
	// Robots is how many requests came from clients that say that they are robots.
	Robots       int64 `json:"requests_of_robots"`
	RobotsDenied int64 `json:"denied_of_robots"`

	// From and To are the times of the first and the last request.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Lines is how many lines the log has, and Late how many of them came too late to be sorted.
	Lines int64 `json:"lines"`
	Late  int64 `json:"late"`
	// Warmup is how many requests were decided before any was counted.
	Warmup int64 `json:"warmup"`
	// Limited is how many requests the server answered with 429 when it wrote the log.
	Limited int64 `json:"limited_in_log"`
	// Unclear is how many requests have a path that servers read in different ways. The doors
	// refuse such a path with 400. Here its route is "unmatched".
	Unclear int64 `json:"unclear_paths"`
	// Shared is how many decisions were made on counters that keys share because of a lack of
	// memory.
	Shared uint64 `json:"shared_counters"`

	// Models is what calls to language models have used, if a rule counts by that.
	Models Models `json:"models,omitzero"`

	// Over is the course of the replay over time.
	Over Over `json:"over_time"`
	// Against compares with the policy in force, if there is one.
	Against *Against `json:"against,omitempty"`
	// Samples are some of the lines that could not be read.
	Samples []Sample `json:"unreadable_samples,omitempty"`
	// Warnings say in what way the log and the policy may not be what they are taken for, so that the
	// numbers prove nothing.
	Warnings []string `json:"warnings,omitempty"`
	// Problems are routes in the policy that are no patterns.
	Problems []string `json:"problems,omitempty"`

	delays  time.Duration
	bunched int64
}

// Models is what calls to language models have used, as the log says it. What would have been reserved
// for them is not in a log.
type Models struct {
	Calls        int64 `json:"calls"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Money is what they cost by the policy's prices, in its currency. Models without a price are left
	// out.
	Money float64 `json:"money"`
	// Unknown is how many calls have a model and no tokens. Rules that count tokens or money do not bind
	// them.
	Unknown int64 `json:"without_tokens"`

	micros int64
}

// Interval says how many requests are denied for two assumptions about their times. If the log has
// only whole seconds, Spread takes the requests of each second as spread evenly over it, and
// Bunched takes all of them at its beginning.
type Interval struct {
	Seconds bool  `json:"whole_seconds"`
	Spread  int64 `json:"denied_spread"`
	Bunched int64 `json:"denied_bunched"`
}

// Most is the larger of the two.
func (i Interval) Most() int64 { return max(i.Spread, i.Bunched) }

// Rule is the result for a rule.
type Rule struct {
	Rule string `json:"rule"`
	// Requests is how many requests the rule bound, and Denied how many of them it denied, alone or
	// with other rules.
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
	// Bunched is Denied if all requests of a second come at once.
	Bunched int64 `json:"denied_bunched"`
	// Shadow is how many requests the rule would have denied if it were not in shadow.
	Shadow  int64 `json:"shadow_denied"`
	Delayed int64 `json:"delayed"`
	// Keys is about how many keys the rule counted, and KeysAlive the largest number of keys at the
	// same time.
	Keys      int64 `json:"keys"`
	KeysAlive int64 `json:"keys_alive"`
	// BytesPerKey is the largest amount of memory for a key in Redis. RedisBytes is the amount for
	// KeysAlive keys.
	BytesPerKey int64 `json:"bytes_per_key"`
	RedisBytes  int64 `json:"redis_bytes"`
	// Tiers are the lists of limits of the rule, if it has more than one.
	Tiers []Tier `json:"tiers,omitempty"`
	// Curve is what lower and higher limits do, and CurveRequests the number of requests with which
	// they were tried.
	Curve         []CurvePoint `json:"curve,omitempty"`
	CurveRequests int64        `json:"curve_requests,omitempty"`
	// Limits are the rule's limits as they are written.
	Limits []string `json:"limits"`
}

// Tier is one list of limits.
type Tier struct {
	Tier     string `json:"tier"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
	Shadow   int64  `json:"shadow_denied"`
}

// CurvePoint is the result for a rule, by itself, with its limits multiplied.
type CurvePoint struct {
	Factor float64 `json:"factor"`
	Denied int64   `json:"denied"`
	// Share is the part of the rule's requests that are denied.
	Share float64 `json:"share"`
}

// Client is the result for a client's requests.
type Client struct {
	Client   string `json:"client"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
	Bunched  int64  `json:"denied_bunched"`
	// Share is the part of the requests that are denied.
	Share float64 `json:"share"`
	// FirstDenied is when the first denied request came.
	FirstDenied *time.Time `json:"first_denied,omitempty"`
	// Rule is the rule, and Tier the list of limits, that denied last.
	Rule string `json:"rule,omitempty"`
	Tier string `json:"tier,omitempty"`
	// NewlyDenied is how many of the denied requests the rules in force admit.
	NewlyDenied int64 `json:"newly_denied,omitempty"`
	// Limited is how many the server answered with 429 when it wrote the log.
	Limited int64 `json:"limited_in_log,omitempty"`
	// Robot says that the client says that it is one.
	Robot bool `json:"robot,omitempty"`
}

// Listed is how many requests an entry of the deny list denied.
type Listed struct {
	By     string `json:"by"`
	Denied int64  `json:"denied"`
}

// Over is the course over time, in intervals of equal length.
type Over struct {
	From        time.Time `json:"from"`
	StretchesMS int64     `json:"stretch_ms"`
	Points      []Point   `json:"points"`
}

// Against is the comparison of two policies.
type Against struct {
	// Denied is how many requests the policy in force denies.
	Denied        int64 `json:"denied"`
	NewlyDenied   int64 `json:"newly_denied"`
	NewlyAdmitted int64 `json:"newly_admitted"`
	// Rules are the rules that cause the differences, the worst first.
	Rules []Difference `json:"rules"`
	// Requests are the first requests that are decided differently.
	Requests []DifferingRequest `json:"requests"`
}

// Sample is a line that could not be read. With [Options.Anonymize] it has no text.
type Sample struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Text   string `json:"text,omitempty"`
	Reason string `json:"reason"`
}

// Result returns the result so far. stats are those of the log.
func (p *Replay) Result(stats accesslog.Stats) *Result {
	r := p.result
	r.Unreadable, r.Lines, r.Late = stats.Unreadable, stats.Lines, stats.Late
	r.Interval = Interval{p.decider.twice(), r.Denied, r.bunched}
	if r.Delayed > 0 {
		r.MeanDelayMS = (r.delays / time.Duration(r.Delayed)).Milliseconds()
	}
	for _, s := range stats.Samples {
		one := Sample{s.File, s.Line, s.Text, s.Reason}
		if p.o.Anonymize {
			one.Text = ""
		}
		r.Samples = append(r.Samples, one)
	}
	if p.begun {
		r.From, r.To = time.UnixMicro(p.from).UTC(), time.UnixMicro(p.to).UTC()
		r.Over = Over{time.UnixMicro(p.series.first).UTC(), p.series.width / 1000, p.series.points}
	}
	for by, n := range p.deniedBy {
		r.DeniedBy = append(r.DeniedBy, Listed{by, n})
	}
	slices.SortFunc(r.DeniedBy, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), strings.Compare(a.By, b.By))
	})
	r.Shared = p.decider.counters.shared
	r.Problems = p.problems
	r.Models.Money = float64(r.Models.micros) / models.MicroUnits
	p.sumRules(&r)
	p.sumClients(&r)
	if p.against != nil {
		p.sumDifferences(&r)
	}
	r.Warnings = p.warnings(&stats, r.Rules)
	return &r
}

// warnings are those of [Result]. A log without any request has none: it proves nothing anyway.
func (p *Replay) warnings(stats *accesslog.Stats, rules []Rule) (all []string) {
	if !p.begun {
		return nil
	}
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, broken := range stats.Broken {
		warn("A log could not be read to its end, and counts up to there: %s.", broken)
	}
	for _, m := range stats.Unmapped {
		warn("No line has a value for --map %s.", m)
	}
	if used := p.decider.facts.needs.ip || p.o.Client == "ip"; used && !stats.Addresses {
		warn("No line has a client's address, and the policy or the report goes by it; --map ip=FIELD says where it is.")
	}
	if p.decider.facts.usage != nil && p.result.Models.Calls == 0 {
		warn("The policy counts what language models use, and no line says that; --map input_tokens=FIELD, output_tokens=FIELD and model=FIELD say where it is.")
	}
	for i, r := range rules {
		if p.result.Requests > 0 && r.Requests == 0 && p.rules[i].rule.Limits != nil {
			warn("The rule %q binds no request of the log.", r.Rule)
		}
	}
	return all
}

func (p *Replay) sumRules(r *Result) {
	r.Rules = make([]Rule, 0, len(p.rules))
	bytes := make(map[string]footprint.Footprint)
	for _, f := range footprint.Of(p.o.Policy) {
		bytes[f.Rule] = f
	}
	for _, c := range p.rules {
		f := bytes[c.rule.Name]
		one := Rule{
			Rule: c.rule.Name, Requests: c.requests, Denied: c.denied, Bunched: c.bunched, Shadow: c.shadow, Delayed: c.delayed,
			Keys: c.keys.count(), KeysAlive: max(c.alive.most, c.alive.count()), BytesPerKey: f.Bytes, Limits: []string{},
		}
		if !p.decider.twice() {
			one.Bunched = one.Denied
		}
		one.RedisBytes = one.KeysAlive * f.Bytes
		for i := range c.rule.Limits.Limits() {
			one.Limits = append(one.Limits, c.rule.Limits.Limits()[i].String())
		}
		if len(c.lists) > 1 {
			for _, l := range c.lists {
				one.Tiers = append(one.Tiers, Tier{l.name, l.requests, l.denied, l.shadow})
			}
		}
		if t := p.curve.found[c.rule.Name]; t != nil {
			one.CurveRequests = t.requests
			for i, factor := range factors {
				one.Curve = append(one.Curve, CurvePoint{factor, t.denied[i], float64(t.denied[i]) / float64(t.requests)})
			}
		}
		r.Rules = append(r.Rules, one)
	}
}

func (p *Replay) sumClients(r *Result) {
	type found struct {
		name string
		*client
	}
	var worst []found
	compare := func(a, b found) int {
		return cmp.Or(cmp.Compare(b.denied, a.denied), cmp.Compare(b.bunched, a.bunched), cmp.Compare(b.newlyDenied, a.newlyDenied), cmp.Compare(b.requests, a.requests), strings.Compare(a.name, b.name))
	}
	r.ClientsSeen, r.ClientsBeyond = p.clients.Len(), p.clients.Beyond()
	for name, c := range p.clients.All() {
		if c.denied > 0 {
			r.ClientsDenied++
		}
		if c.robot {
			r.Robots += int64(c.requests)
			r.RobotsDenied += int64(c.denied)
		}
		f := found{name, c}
		if len(worst) == p.o.Top && compare(worst[len(worst)-1], f) <= 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(worst, f, compare)
		worst = slices.Insert(worst, i, f)
		worst = worst[:min(len(worst), p.o.Top)]
	}
	r.Clients = make([]Client, 0, len(worst))
	for _, w := range worst {
		one := Client{
			Client: p.shown(w.name, w.kind), Requests: int64(w.requests), Denied: int64(w.denied), Bunched: int64(w.bunched),
			Share: float64(w.denied) / float64(w.requests), NewlyDenied: int64(w.newlyDenied), Limited: int64(w.limited), Robot: w.robot,
		}
		if !p.decider.twice() {
			one.Bunched = one.Denied
		}
		if w.denied > 0 {
			at := time.UnixMicro(w.firstDenied).UTC()
			one.FirstDenied = &at
		}
		if w.by > 0 {
			l := p.lists[w.by-1]
			one.Rule, one.Tier = l.of.rule.Name, l.name
		}
		r.Clients = append(r.Clients, one)
	}
}

func (p *Replay) sumDifferences(r *Result) {
	d := &p.differences
	a := &Against{Denied: d.otherDenied, NewlyDenied: d.newlyDenied, NewlyAdmitted: d.newlyAdmitted, Rules: []Difference{}, Requests: d.list}
	for _, of := range d.by {
		a.Rules = append(a.Rules, *of)
	}
	slices.SortFunc(a.Rules, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(y.NewlyDenied+y.NewlyAdmitted, x.NewlyDenied+x.NewlyAdmitted), strings.Compare(x.Rule, y.Rule))
	})
	if a.Requests == nil {
		a.Requests = []DifferingRequest{}
	}
	r.Against = a
}

// differences counts the requests that two policies decide differently.
type differences struct {
	newlyDenied, newlyAdmitted int64
	otherDenied                int64
	by                         map[string]*Difference
	list                       []DifferingRequest
	max                        int
}

// Difference is the number of requests for which a rule is the reason.
type Difference struct {
	// Rule is the rule that denies. For newly denied requests, it is a rule of the proposed policy,
	// and for newly admitted ones, a rule of the policy in force.
	Rule          string `json:"rule"`
	NewlyDenied   int64  `json:"newly_denied"`
	NewlyAdmitted int64  `json:"newly_admitted"`
}

// DifferingRequest is a request that the two policies decide differently.
type DifferingRequest struct {
	Time   time.Time `json:"time"`
	Client string    `json:"client"`
	Method string    `json:"method,omitempty"`
	Path   string    `json:"path,omitempty"`
	// Denied says that the proposed policy denies it, and the one in force does not.
	Denied bool `json:"newly_denied"`
	// Rule is the rule that denies it.
	Rule string `json:"rule"`
	// RetryAfterMS is the wait until the request would fit; zero if waiting does not help.
	RetryAfterMS int64 `json:"retry_after_ms"`
}

func (p *Replay) differ(r *accesslog.Request, c *client, o, other *outcome) {
	d := &p.differences
	if !other.allowed {
		d.otherDenied++
	}
	if o.allowed == other.allowed {
		return
	}
	denier := o
	if o.allowed {
		denier = other
	}
	rule := denier.by()
	if d.by == nil {
		d.by = make(map[string]*Difference)
	}
	of := d.by[rule]
	if of == nil {
		of = &Difference{Rule: rule}
		d.by[rule] = of
	}
	if o.allowed {
		d.newlyAdmitted++
		of.NewlyAdmitted++
	} else {
		d.newlyDenied++
		of.NewlyDenied++
		c.newlyDenied++
	}
	if len(d.list) >= d.max {
		return
	}
	name, kind := p.name(r)
	_, path := split(r)
	one := DifferingRequest{Time: time.UnixMicro(r.Spread).UTC(), Client: p.shown(name, kind), Method: strings.Clone(r.Text(r.Method)), Denied: !o.allowed, Rule: rule}
	if !p.o.Anonymize {
		one.Path = strings.Clone(path)
	}
	if wait := denier.verdict.RetryAfter; wait > 0 {
		one.RetryAfterMS = wait.Milliseconds()
	}
	d.list = append(d.list, one)
}

// pseudonym returns a name from which the client cannot be found: a hash with a key that is
// discarded at the end of the replay.
func (p *Replay) pseudonym(name string) string {
	if p.anonymous == nil {
		p.anonymous = make([]byte, 32)
		// It never fails.
		_, _ = rand.Read(p.anonymous)
	}
	h := hmac.New(sha256.New, p.anonymous)
	h.Write([]byte(name))
	return "client-" + hex.EncodeToString(h.Sum(nil)[:5])
}
