package outbound

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/notice"
)

// Hint is what an answer says of the limits of whoever has sent it.
type Hint struct {
	// Wait is for how long nothing more is to be sent; zero if the answer does not say.
	Wait time.Duration
	// Limited says that the answer is a refusal for want of quota.
	Limited bool
	// NoRetry says that the answer is marked as one that is not to be retried.
	NoRetry bool
	// Windows are the limits that the answer tells of.
	Windows []Window
}

// Window is a limit as an answer tells it.
type Window struct {
	// Limit is how much it admits, or -1 if the answer does not say.
	Limit int64
	// Remaining is what is left of it.
	Remaining int64
	// Reset is when it is free again, from now.
	Reset time.Duration
	// Period is the time for which the limit is, or 0 if the answer does not say.
	Period time.Duration
}

const (
	// maxWindows bounds how many limits are read of one answer, and how many parameters of
	// each; longest bounds how long a time in it may be: beyond that it is taken for a
	// mistake, and cut.
	maxWindows = 16
	longest    = 30 * 24 * time.Hour
	// shopifyLeak is how many units of Shopify's bucket become free in a second.
	shopifyLeak = 2
)

// ReadHint reads the headers of an answer: Retry-After in seconds or as a date, and
// Retry-After-Ms; RateLimit and RateLimit-Policy of the IETF's draft (11, and 7 before it);
// RateLimit-* and X-RateLimit-* with a reset in seconds, as a duration, or as a time in
// seconds or milliseconds since 1970, as GitHub has it; X-Shopify-Shop-Api-Call-Limit;
// Stripe-Should-Retry, X-Should-Retry and Headgate-Retry. What cannot be read is as good as
// not there. now is the local time; dates count from the answer's own Date, if it has one.
func ReadHint(status int, h http.Header, now time.Time) Hint {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	hint := Hint{NoRetry: noRetry(h), Wait: retryAfter(h, now)}
	hint.structured(h)
	hint.separate(h, now)
	if used, most, ok := strings.Cut(h.Get("X-Shopify-Shop-Api-Call-Limit"), "/"); ok {
		u, okUsed := whole(used)
		m, okMost := whole(most)
		if okUsed && okMost && u <= m {
			hint.add(Window{Limit: m, Remaining: m - u, Reset: seconds(float64(u) / shopifyLeak)})
		}
	}
	empty := false
	for _, w := range hint.Windows {
		empty = empty || w.Remaining == 0
	}
	switch status {
	case http.StatusTooManyRequests:
		hint.Limited = true
	case http.StatusForbidden:
		// GitHub refuses so.
		hint.Limited = empty || hint.Wait > 0
	}
	if status != http.StatusServiceUnavailable && !hint.Limited {
		hint.Wait = 0 // With a redirect, for instance, it means something else.
	}
	return hint
}

func noRetry(h http.Header) bool {
	return strings.EqualFold(h.Get(notice.RetryHeader), notice.NoRetry) ||
		strings.EqualFold(h.Get("Stripe-Should-Retry"), "false") ||
		strings.EqualFold(h.Get("X-Should-Retry"), "false")
}

// retryAfter is when to come again, by the headers for that; zero if they do not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, ok := number(h.Get("Retry-After-Ms")); ok {
		return seconds(ms / 1000)
	}
	text := h.Get("Retry-After")
	if s, ok := number(text); ok {
		return seconds(s)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), longest)
	}
	return 0
}

// structured reads RateLimit and RateLimit-Policy, which are lists of items with parameters.
func (hint *Hint) structured(h http.Header) {
	quotas := make(map[string]Window)
	for name, of := range items(h.Values("Ratelimit-Policy")) {
		if q, ok := whole(of["q"]); ok {
			w, _ := number(of["w"])
			quotas[name] = Window{Limit: q, Period: seconds(w)}
		}
	}
	seventh := Window{Limit: -1, Remaining: -1}
	for name, of := range items(h.Values("Ratelimit")) {
		if v, ok := strings.CutPrefix(name, "limit="); ok {
			seventh.Limit = known(v)
		} else if v, ok := strings.CutPrefix(name, "remaining="); ok {
			seventh.Remaining = known(v)
		} else if v, ok := strings.CutPrefix(name, "reset="); ok {
			s, _ := number(v)
			seventh.Reset = seconds(s)
		}
		r, ok := whole(of["r"])
		if !ok {
			continue
		}
		t, _ := number(of["t"])
		w := Window{Limit: -1, Remaining: r, Reset: seconds(t)}
		if q, ok := quotas[name]; ok {
			w.Limit, w.Period = q.Limit, q.Period
		}
		hint.add(w)
	}
	if seventh.Remaining >= 0 {
		hint.add(seventh)
	}
}

// separate reads headers with one number each.
func (hint *Hint) separate(h http.Header, now time.Time) {
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-", "X-Rate-Limit-"} {
		for _, suffix := range []string{"", "-Requests", "-Tokens"} {
			remaining, ok := whole(h.Get(prefix + "Remaining" + suffix))
			if !ok {
				continue
			}
			w := Window{Limit: known(h.Get(prefix + "Limit" + suffix)), Remaining: remaining}
			if s, ok := number(h.Get(prefix + "Reset-After")); ok {
				w.Reset = seconds(s)
			} else {
				w.Reset = reset(h.Get(prefix+"Reset"+suffix), now)
			}
			hint.add(w)
		}
	}
}

// reset reads when a limit is free again: in seconds, as a duration, or as a time.
func reset(text string, now time.Time) time.Duration {
	v, ok := number(text)
	switch {
	case !ok:
		if d, err := time.ParseDuration(text); err == nil {
			return min(max(d, 0), longest)
		}
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return min(max(at.Sub(now), 0), longest)
		}
		return 0
	case v >= 1e11: // milliseconds since 1970
		v = v/1000 - float64(now.UnixMilli())/1000
	case v >= 1e9: // seconds since 1970
		v -= float64(now.Unix())
	}
	return seconds(v)
}

func (hint *Hint) add(w Window) {
	if len(hint.Windows) < maxWindows {
		hint.Windows = append(hint.Windows, w)
	}
}

// items yields the items of a list of structured fields (RFC 9651), with their parameters.
// It is lenient: names stand with or without quotes.
func items(lines []string) func(yield func(string, map[string]string) bool) {
	return func(yield func(string, map[string]string) bool) {
		seen := 0
		for _, line := range lines {
			for item := range strings.SplitSeq(line, ",") {
				if seen++; seen > maxWindows {
					return
				}
				name, rest, _ := strings.Cut(strings.TrimSpace(item), ";")
				of := make(map[string]string)
				for parameter := range strings.SplitSeq(rest, ";") {
					key, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
					if len(of) < maxWindows || of[key] != "" {
						of[key] = strings.Trim(value, `" `)
					}
				}
				if !yield(strings.Trim(name, `" `), of) {
					return
				}
			}
		}
	}
}

// number is one that is not negative.
func number(text string) (float64, bool) {
	if len(text) > 32 {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return v, err == nil && v >= 0 && !math.IsInf(v, 0)
}

// whole is a number without a fraction.
func whole(text string) (int64, bool) {
	v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return v, err == nil && v >= 0
}

// known is a whole number, or -1.
func known(text string) int64 {
	if v, ok := whole(text); ok {
		return v
	}
	return -1
}

func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, longest.Seconds()) * float64(time.Second))
}
