package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// API is whose manners a provider has: how it is shown a key, how it refuses, how it tells limits.
type API uint8

// The APIs.
const (
	OpenAI     API = iota
	Anthropic      // Anthropic
	Compatible     // what speaks like OpenAI, and may know only its older fields: vLLM, Ollama

	apis // the number of them
)

var apiNames = [apis]string{"openai", "anthropic", "compatible"}

// String returns the API as it is written in gateway files.
func (a API) String() string {
	if a < apis {
		return apiNames[a]
	}
	return fmt.Sprintf("api(%d)", uint8(a))
}

// Authorize puts the provider's key into a request, in place of the client's.
func (a API) Authorize(h http.Header, key string) {
	delete(h, "Authorization")
	delete(h, "X-Api-Key")
	switch {
	case key == "":
	case a == Anthropic:
		h["X-Api-Key"] = []string{key}
	default:
		h["Authorization"] = []string{"Bearer " + key}
	}
}

// kinds are the types of errors, by status, for OpenAI and Anthropic.
var kinds = map[int][2]string{
	http.StatusBadRequest:            {"invalid_request_error", "invalid_request_error"},
	http.StatusUnauthorized:          {"authentication_error", "authentication_error"},
	http.StatusForbidden:             {"permission_error", "permission_error"},
	http.StatusNotFound:              {"not_found_error", "not_found_error"},
	http.StatusRequestEntityTooLarge: {"invalid_request_error", "request_too_large"},
	http.StatusTooManyRequests:       {"rate_limit_exceeded", "rate_limit_error"},
	http.StatusServiceUnavailable:    {"server_error", "overloaded_error"},
	http.StatusGatewayTimeout:        {"server_error", "timeout_error"},
}

// Error returns the body of a refusal as the provider's clients know it. field may be empty.
func (a API) Error(status int, text, field string) []byte {
	names, ok := kinds[status]
	if !ok {
		names = [2]string{"server_error", "api_error"}
		if status < http.StatusInternalServerError {
			names = kinds[http.StatusBadRequest]
		}
	}
	type anthropic struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	type openAI struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	var body any
	if a == Anthropic {
		body = map[string]any{"type": "error", "error": anthropic{names[1], text}}
	} else {
		e := openAI{Message: text, Type: names[0]}
		if field != "" {
			e.Param = &field
		}
		if status == http.StatusTooManyRequests {
			e.Type, e.Code = "requests", &names[0]
		}
		body = map[string]any{"error": e}
	}
	made, _ := json.Marshal(body) // it has only texts
	return append(made, '\n')
}

// families are what providers tell limits of, by what the rules count.
var families = [...]struct {
	counted models.Counted
	name    string
	openAI  bool
}{
	{models.Requests, "requests", true},
	{models.Tokens, "tokens", true},
	{models.InputTokens, "input-tokens", false},
	{models.OutputTokens, "output-tokens", false},
}

// Limits writes the provider's headers about limits, from the decisions about a request: of several
// limits that count the same, the one with the least left. What waits longer than a minute is not to
// be tried again by the client's own program.
func (a API) Limits(h http.Header, v *headgate.Verdict, set *policy.Set, now time.Time) {
	for _, f := range families {
		var tightest *headgate.Decision
		for i := range v.Decisions {
			d := &v.Decisions[i]
			if d.Rule == nil || d.Limit == nil || d.Shadow {
				continue
			}
			if r := set.Rule(d.Rule.Name()); r != nil && r.Counts == f.counted && (tightest == nil || d.Remaining < tightest.Remaining) {
				tightest = d
			}
		}
		if tightest == nil {
			continue
		}
		limit, left := strconv.FormatInt(tightest.Limit.Capacity(), 10), strconv.FormatInt(tightest.Remaining, 10)
		switch {
		case a == Anthropic:
			h.Set("Anthropic-Ratelimit-"+f.name+"-Limit", limit)
			h.Set("Anthropic-Ratelimit-"+f.name+"-Remaining", left)
			h.Set("Anthropic-Ratelimit-"+f.name+"-Reset", now.Add(tightest.ResetAfter+time.Second-1).UTC().Format(time.RFC3339))
		case f.openAI:
			h.Set("X-Ratelimit-Limit-"+f.name, limit)
			h.Set("X-Ratelimit-Remaining-"+f.name, left)
			h.Set("X-Ratelimit-Reset-"+f.name, (tightest.ResetAfter + time.Millisecond - 1).Truncate(time.Millisecond).String())
		}
	}
	if !v.Allowed && (v.RetryAfter == headgate.Never || v.RetryAfter > time.Minute) {
		h.Set("X-Should-Retry", "false")
	}
}

// Denial says in words why a verdict denies, and when the same call would fit.
func Denial(v *headgate.Verdict, checks []headgate.Check, set *policy.Set, now time.Time) string {
	d := v.Deciding()
	if d == nil || d.Rule == nil || d.Limit == nil {
		return "The call is not admitted."
	}
	counted, cost := models.Requests, int64(1)
	if r := set.Rule(d.Rule.Name()); r != nil {
		counted = r.Counts
	}
	if d.Check < len(checks) {
		cost = checks[d.Check].Units()
	}
	unit := counted.String()
	if counted == models.Money {
		unit = fmt.Sprintf("units of money (each 1/%d of the currency)", models.MicroUnits/set.Models().Unit())
	}
	text := fmt.Sprintf("The limit %q of the rule %q has %d %s left, and the call may need %d.", d.Limit, d.Rule.Name(), d.Remaining, unit, cost)
	if v.RetryAfter == headgate.Never {
		return text + " It never fits: ask for less output, or send less."
	}
	return text + " It fits at " + now.Add(v.RetryAfter+time.Second-1).UTC().Format(time.RFC3339) + "."
}
