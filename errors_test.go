package headgate_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestErrors(t *testing.T) {
	r := headgate.MustRule("login", headgate.PerMinute(20))
	d := headgate.Decision{Rule: r, Limit: &r.Limits()[0], RetryAfter: 1840*time.Millisecond + 300}
	for want, err := range map[string]*headgate.DeniedError{
		`headgate: denied`: {},
		`headgate: denied by rule "login", limit "20 per 1m": fits in 1.84s`:                                     {Decision: d},
		`headgate: denied by rule "login", limit "20 per 1m": fits in 1.84s; the context's deadline comes first`: {Decision: d, Reason: "the context's deadline comes first"},
		`headgate: denied by rule "login", limit "20 per 1m": the cost can never fit`:                            {Decision: headgate.Decision{Rule: r, Limit: d.Limit, RetryAfter: headgate.Never}},
	} {
		wrapped := fmt.Errorf("signing in: %w", err)
		var denied *headgate.DeniedError
		if err.Error() != want || !errors.Is(wrapped, headgate.ErrDenied) || errors.Is(wrapped, headgate.ErrInvalid) || !errors.As(wrapped, &denied) {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	invalid := &headgate.InvalidError{Subject: "x", Problems: headgate.Problems{{Field: "a", Text: "a is 1"}, {Text: "b is 2"}}}
	if invalid.Error() != "headgate: x: a is 1; b is 2" || !errors.Is(invalid, headgate.ErrInvalid) || errors.Is(invalid, headgate.ErrDenied) {
		t.Errorf("%v", invalid)
	}
}
