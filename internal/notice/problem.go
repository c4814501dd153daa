package notice

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy/inprogress"
)

// The problem types (RFC 9457) that the IETF's rate-limit draft defines.
const (
	TypeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Problem says why a request was not served. Its fields are those of httplimit.Problem,
// which has their meaning and can be written as a response.
type Problem struct {
	Type             string
	Title            string
	Status           int
	Detail           string
	ViolatedPolicies []string
	RetryAfterMS     int64
}

// QuotaExceeded is the problem of a denial: status 429.
func QuotaExceeded(v *headgate.Verdict) Problem {
	p := Problem{
		Type:         TypeQuotaExceeded,
		Title:        "The assigned quota is exceeded",
		Status:       429,
		RetryAfterMS: ceilMillis(v.RetryAfter),
	}
	items := v.Decisions
	for i := range items {
		if items[i].Allowed || items[i].Shadow || items[i].Limit == nil {
			continue
		}
		p.ViolatedPolicies = append(p.ViolatedPolicies, string(appendName(nil, items, i)))
	}
	if d := v.Deciding(); d != nil && d.Rule != nil && !d.Allowed {
		if d.RetryAfter == headgate.Never {
			p.Detail = fmt.Sprintf("The request costs more than rule %q can ever admit (%s).", d.Rule.Name(), d.Limit)
		} else if d.Limit.Algorithm == headgate.Penalty {
			p.Detail = fmt.Sprintf("Rule %q blocks who was denied too often (%s); the block ends in %v.", d.Rule.Name(), d.Limit, time.Duration(ceilMillis(d.RetryAfter))*time.Millisecond)
		} else {
			p.Detail = fmt.Sprintf("Rule %q admits %s; the request fits in %v.", d.Rule.Name(), d.Limit, time.Duration(ceilMillis(d.RetryAfter))*time.Millisecond)
		}
	}
	return p
}

// ReducedCapacity is the problem of a request that was turned away because
// nothing could be decided: status 503. retryAfter is when to come back.
func ReducedCapacity(retryAfter time.Duration) Problem {
	return Problem{
		Type:         TypeReducedCapacity,
		Title:        "Capacity is reduced for the moment",
		Status:       503,
		Detail:       "The rate limiter could not decide on the request.",
		RetryAfterMS: ceilMillis(max(0, retryAfter)),
	}
}

// InProgress is the problem of a request that gets no permit. If the bound is the
// client's own, the client is to send less at a time: status 429. Otherwise the service
// has no room, whoever has taken it: status 503.
func InProgress(r *inprogress.Refusal) Problem {
	p := ReducedCapacity(0)
	if r.Own() {
		p.Type, p.Title, p.Status = TypeQuotaExceeded, "The assigned quota is exceeded", 429
	}
	p.Detail, p.RetryAfterMS = r.Detail(), ceilMillis(r.RetryAfter())
	p.ViolatedPolicies = []string{string(appendEncoded(nil, r.Bound.Rule.Name))}
	return p
}

// UnenforcedHeader tells a proxy that asks whether a request may pass which rules bound what
// is in progress and bind the request, too: a question ends before the request does, so they
// were left out.
const UnenforcedHeader = "Headgate-Unenforced"

// Unenforced is the value of [UnenforcedHeader]: the names of the rules, in which a comma is
// written as %2C.
func Unenforced(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strings.ReplaceAll(string(appendEncoded(nil, name)), ",", "%2C"))
	}
	return b.String()
}

// Forbidden is the problem of a request that a policy's deny list turns away:
// status 403. It does not say which entry of the list did: the client is not to
// find its way around it.
func Forbidden() Problem {
	return Problem{Title: "The request is not allowed", Status: 403}
}

// Uncountable is the problem of a request that the rules cannot be applied to: status 400.
// The detail says why.
func Uncountable(detail string) Problem {
	return Problem{Title: "The request cannot be counted", Status: 400, Detail: detail}
}

// TooLong is the problem of a request whose value for an entry is longer than what is counted by:
// status 431.
func TooLong(entry string) Problem {
	return Problem{Title: "The request is too large", Status: 431, Detail: "What it gives as its " + entry + " is too long."}
}

// Ambiguous is the problem of a request that servers read in different ways, so that it
// could be counted by the one and served by the other: status 400. The detail says what is
// wrong with it.
func Ambiguous(detail string) Problem {
	return Problem{Title: "The request can be read in two ways", Status: 400, Detail: detail}
}
