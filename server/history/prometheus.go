package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/telemetry/insight"
)

const (
	// timeout is how long Prometheus may take for a question.
	timeout = 5 * time.Second
	// maxAnswer bounds one of its answers, in bytes.
	maxAnswer = 16 << 20
	// maxQueries is how many queries run at a time. Others wait.
	maxQueries = 4
	// window is the longest time between three scrapes.
	window = 5 * time.Minute
)

// Prometheus asks a server that scrapes the instances. Make one with [NewPrometheus].
type Prometheus struct {
	base    url.URL
	labels  []string // that metrics must have, as matchers
	client  *http.Client
	running chan struct{}
}

var label = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// CheckAddress returns what is wrong with an address of Prometheus, or "".
func CheckAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" {
		return "it is not the URL of a Prometheus, such as http://prometheus.internal:9090?job=headgate"
	}
	for name := range u.Query() {
		if !label.MatchString(name) {
			return "its query must have labels that metrics must have, such as ?job=headgate"
		}
	}
	return ""
}

// NewPrometheus returns a reader for the server at the address, which [CheckAddress] found right. The
// query of the address has labels that metrics must have, such as ?job=headgate. Nil means a default
// client.
func NewPrometheus(address string, client *http.Client) *Prometheus {
	u, err := url.Parse(address)
	if err != nil {
		u = new(url.URL) // CheckAddress has refused it.
	}
	p := &Prometheus{base: *u, client: client, running: make(chan struct{}, maxQueries)}
	if client == nil {
		p.client = new(http.Client)
	}
	for name, values := range u.Query() {
		for _, value := range values {
			p.labels = append(p.labels, name+"="+strconv.Quote(value))
		}
	}
	slices.Sort(p.labels)
	p.base.RawQuery = ""
	return p
}

// Source implements [Reader].
func (p *Prometheus) Source() string { return "Prometheus at " + p.base.Host }

// Whole implements [Reader].
func (p *Prometheus) Whole() bool { return true }

// increase is by how much a counter grew in the time before each instant, by labels. A series is
// compared over a longer time only where the time has no two scrapes, because that spreads what was
// short, such as an outage, over all of it.
func (p *Prometheus) increase(metric, matcher, by string, of time.Duration) string {
	matchers := p.labels
	if matcher != "" {
		matchers = append([]string{matcher}, matchers...)
	}
	over, all := []time.Duration{of}, []string(nil)
	if of < window {
		over = []time.Duration{of, 2 * of, window}
	}
	for _, over := range over {
		all = append(all, fmt.Sprintf("increase(%s{%s}[%ds]) * %g", metric, strings.Join(matchers, ","), int(over.Seconds()), of.Seconds()/over.Seconds()))
	}
	return fmt.Sprintf("sum by (%s) (%s)", by, strings.Join(all, " or "))
}

// Read implements [Reader]. Counts are what Prometheus estimates with increase().
func (p *Prometheus) Read(ctx context.Context, q Question) (insight.Past, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	past := q.blank()
	// Each series tells by its labels what it counts.
	counted := p.increase("headgate_requests_total", "", "outcome", q.Step) + " or " + p.increase("headgate_requests_without_store_total", "", "by", q.Step) +
		" or " + p.increase("headgate_rule_checks_total", `outcome="shadow"`, "outcome", q.Step)
	if q.Rule != "" {
		of := "rule=" + strconv.Quote(q.Rule)
		counted = p.increase("headgate_rule_checks_total", of, "outcome", q.Step) + " or " + p.increase("headgate_rule_checks_without_store_total", of, "by", q.Step)
	}
	// What grew until an instant was counted in the step before it.
	series, err := p.ask(ctx, "query_range", url.Values{
		"query": {counted}, "start": {seconds(q.From.Add(q.Step))}, "end": {seconds(q.Until)}, "step": {seconds(time.Unix(0, 0).Add(q.Step))},
	})
	if err != nil {
		return past, err
	}
	for _, s := range series {
		for _, v := range s.Values {
			if i := int(v.at.Sub(q.From)/q.Step) - 1; i >= 0 && i < len(past.Minutes) {
				past.Minutes[i].Unknown = false
				s.add(&past.Minutes[i].Counts, v.value)
			}
		}
	}
	if q.Rule != "" {
		return past, nil
	}
	long := q.Until.Sub(q.From)
	checks := p.increase("headgate_rule_checks_total", "", "rule, outcome", long) + " or " + p.increase("headgate_rule_checks_without_store_total", "", "rule, by", long)
	rules := make(map[string]int)
	for _, until := range []time.Time{q.Until, q.From} {
		series, err := p.ask(ctx, "query", url.Values{"query": {checks}, "time": {seconds(until)}})
		if err != nil {
			return past, err
		}
		for _, s := range series {
			name := s.Metric["rule"]
			at, ok := rules[name]
			if !ok {
				at = len(past.Rules)
				rules[name], past.Rules = at, append(past.Rules, insight.RuleCounts{Rule: name})
			}
			to := &past.Rules[at].Counts
			if until.Equal(q.From) {
				to = &past.Rules[at].Before
			}
			s.add(to, s.Value.value)
		}
	}
	past.Rules = slices.DeleteFunc(past.Rules, func(r insight.RuleCounts) bool { return r.Counts == insight.Counts{} && r.Before == insight.Counts{} })
	return past, nil
}

// Marks implements [Reader]. It knows times to a five hundredth of the range, and not which rules a
// policy has changed.
func (p *Prometheus) Marks(ctx context.Context, from, until time.Time) (marks []Mark, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	step, labels := max(time.Minute, (until.Sub(from)/500).Truncate(time.Minute)), strings.Join(p.labels, ",")
	over := func(query string) []series {
		answer, wrong := p.ask(ctx, "query_range", url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(until)}, "step": {strconv.Itoa(int(step.Seconds()))}})
		err = errors.Join(err, wrong)
		return answer
	}
	for _, s := range over("count by (hash) (headgate_policy_info{" + labels + "})") {
		if len(s.Values) == 0 {
			continue // Prometheus sends no such series, but something else may answer.
		}
		if first := s.Values[0].at; first.Sub(from) > step {
			marks = append(marks, Mark{At: first.UnixMilli(), Kind: "policy", Text: "another policy is in force"})
		}
	}
	for _, s := range over(fmt.Sprintf("sum(changes(process_start_time_seconds{%s}[%ds]) and on (job, instance) headgate_build_info) > 0", labels, int(step.Seconds()))) {
		for _, v := range s.Values {
			marks = append(marks, Mark{At: v.at.UnixMilli(), Kind: "start", Text: "an instance was started"})
		}
	}
	for _, s := range over(`max(headgate_store_breaker_state{` + strings.Join(append([]string{`state="open"`}, p.labels...), ",") + `}) > 0`) {
		for i, v := range s.Values {
			if i > 0 && v.at.Sub(s.Values[i-1].at) <= step {
				marks[len(marks)-1].Until = v.at.UnixMilli()
				continue
			}
			marks = append(marks, Mark{At: v.at.UnixMilli(), Until: v.at.UnixMilli(), Kind: "outage", Text: "the store did not answer"})
		}
	}
	slices.SortStableFunc(marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	return marks, err
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// series is one of an answer: Values of a query over a range, Value of one at an instant.
type series struct {
	Metric map[string]string `json:"metric"`
	Values []sample          `json:"values"`
	Value  sample            `json:"value"`
}

// sample is written [SECONDS, "VALUE"].
type sample struct {
	at    time.Time
	value int64
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *sample) UnmarshalJSON(text []byte) error {
	var at float64
	var value string
	if err := json.Unmarshal(text, &[]any{&at, &value}); err != nil {
		return err
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > math.MaxInt64/2 {
		n = 0
	}
	s.at, s.value = time.Unix(int64(math.Round(at)), 0), int64(math.Round(n))
	return err
}

// add adds a value to the count that the labels name.
func (s *series) add(to *insight.Counts, n int64) {
	switch s.Metric["outcome"] + s.Metric["by"] {
	case "error":
		if s.Metric["by"] == "" { // What was decided without the store has errors once more.
			to.Failed += n
		}
	case "admitted", "allowed":
		to.Allowed += n
	case "denied":
		to.Denied += n
	case "shadow":
		to.Shadow += n
	case "uncharged":
		to.Uncharged += n
	case "failed":
		to.Failed += n
	case "open":
		to.Open += n
	case "local":
		to.Local += n
	case "listed":
		to.Listed += n
	}
}

// ask asks a question in the language of Prometheus.
func (p *Prometheus) ask(ctx context.Context, what string, of url.Values) ([]series, error) {
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s did not answer within %v", p.Source(), timeout)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base.JoinPath("api/v1", what).String(), strings.NewReader(of.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := p.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s did not answer within %v", p.Source(), timeout)
		}
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the URL, which may hold a password
		}
		return nil, fmt.Errorf("%s does not answer: %w", p.Source(), err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s broke off its answer: %w", p.Source(), err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("%s answers with more than %d MiB", p.Source(), maxAnswer>>20)
	}
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []series `json:"result"`
		} `json:"data"`
	}
	switch err := json.Unmarshal(text, &answer); {
	case response.StatusCode != http.StatusOK && answer.Error != "":
		return nil, fmt.Errorf("%s answers with status %d: %.200s", p.Source(), response.StatusCode, answer.Error)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers with status %d", p.Source(), response.StatusCode)
	case err != nil || answer.Status != "success":
		return nil, fmt.Errorf("the answer of %s is not understood", p.Source())
	}
	return answer.Data.Result, nil
}
