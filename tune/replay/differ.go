package replay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/headgate/headgate/tune/accesslog"
)

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
