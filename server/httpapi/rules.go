package httpapi

import (
	"net/http"
	"strconv"

	"github.com/headgate/headgate/policy"
)

// serveRules lists the policy in force.
func (h *Handler) serveRules(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, h.textsOf(h.decider.Policy()).rules())
}

func appendRules(b []byte, t *texts) []byte {
	b = appendVersion(append(b, '{'), t.set)
	b = append(b, `,"rules":[`...)
	rules := t.set.Rules()
	for i := range rules {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRule(b, &rules[i], t)
	}
	return append(b, "]}\n"...)
}

func appendRule(b []byte, r *policy.Rule, t *texts) []byte {
	b = appendString(append(b, `{"name":`...), r.Name)
	b = strconv.AppendBool(append(b, `,"direct":`...), r.Direct)
	b = append(b, `,"match":[`...)
	for i := range r.Match {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCondition(b, &r.Match[i])
	}
	b = append(b, `],"per":[`...)
	for i := range r.Per {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, r.Per[i].String())
	}
	b = strconv.AppendInt(append(b, `],"cost":`...), max(r.Cost, 1), 10)
	b = append(b, `,"limits":[`...)
	limits := r.Limits.Limits()
	for i := range limits {
		if i > 0 {
			b = append(b, ',')
		}
		text := t.byLimit[&limits[i]]
		b = appendString(append(b, `{"limit":`...), limits[i].String())
		b = append(append(b, ','), text.kind...)
		b = append(append(append(b, ','), text.size...), '}')
	}
	return append(b, "]}"...)
}

// appendCondition writes which entry a rule looks at, and how many values it
// compares it with, but not the values: they may be API keys.
func appendCondition(b []byte, c *policy.Condition) []byte {
	b = appendString(append(b, `{"entry":`...), c.Entry)
	b = strconv.AppendBool(append(b, `,"not":`...), c.Not)
	b = strconv.AppendInt(append(b, `,"values":`...), int64(len(c.Equals)), 10)
	b = strconv.AppendInt(append(b, `,"prefixes":`...), int64(len(c.Prefixes)), 10)
	return append(b, '}')
}
