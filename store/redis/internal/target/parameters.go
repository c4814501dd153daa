package target

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parameter is a parameter of a URL, after the ?.
type parameter struct {
	name string
	set  func(t *Target, s *Settings, value string) string // returns what is wrong, or ""
}

var parameters = []parameter{
	{"ca_file", text(func(t *Target) *string { return &t.caFile })},
	{"cert_file", text(func(t *Target) *string { return &t.certFile })},
	{"client_name", func(t *Target, _ *Settings, value string) string {
		if value == "" || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return "must be letters, digits and signs of ASCII, without spaces; none leaves it out"
		}
		if t.clientName = value; value == "none" {
			t.clientName = ""
		}
		return ""
	}},
	{"combine_from", number(0, 1<<20, false, func(_ *Target, s *Settings) *int64 { return &s.CombineFrom })},
	{"connect_timeout", duration(10*time.Millisecond, time.Minute, func(t *Target, _ *Settings) *time.Duration { return &t.ConnectTimeout })},
	{"connections", number(1, 8, true, func(t *Target, _ *Settings) *int64 { return &t.connections })},
	{"key_file", text(func(t *Target) *string { return &t.keyFile })},
	{"master", text(func(t *Target) *string { return &t.Master })},
	{"max_pending", number(1, 1<<20, false, func(_ *Target, s *Settings) *int64 { return &s.MaxPending })},
	{"password_file", text(func(t *Target) *string { return &t.passwordFile })},
	{"prefix", func(_ *Target, s *Settings, value string) string { s.Prefix = value; return "" }},
	{"queue", number(1<<8, 1<<18, true, func(t *Target, _ *Settings) *int64 { return &t.Queue })},
	{"read_buffer", number(1<<10, 1<<24, false, func(t *Target, _ *Settings) *int64 { return &t.readBuffer })},
	{"refresh", duration(100*time.Millisecond, time.Hour, func(t *Target, _ *Settings) *time.Duration { return &t.refresh })},
	{"sentinel_password_file", text(func(t *Target) *string { return &t.sentinelPasswordFile })},
	{"sentinel_user", text(func(t *Target) *string { return &t.sentinelUser })},
	{"server_name", text(func(t *Target) *string { return &t.serverName })},
	{"tls", func(t *Target, _ *Settings, value string) string {
		switch {
		case value != "true" && value != "false":
			return "must be true or false"
		case value == "false" && t.tls:
			return "is false, but the scheme asks for it"
		}
		t.tls = value == "true"
		return ""
	}},
	{"write_buffer", number(1<<10, 1<<24, false, func(t *Target, _ *Settings) *int64 { return &t.writeBuffer })},
}

func text(field func(*Target) *string) func(*Target, *Settings, string) string {
	return func(t *Target, _ *Settings, value string) string {
		if value == "" {
			return "is empty; leave it out or give it a value"
		}
		*field(t) = value
		return ""
	}
}

func duration(least, most time.Duration, field func(*Target, *Settings) *time.Duration) func(*Target, *Settings, string) string {
	return func(t *Target, s *Settings, value string) string {
		d, err := time.ParseDuration(value)
		if err != nil || d < least || d > most {
			return fmt.Sprintf("must be a time from %v to %v, such as %v", least, most, min(max(least, 200*time.Millisecond), most))
		}
		*field(t, s) = d
		return ""
	}
}

func number(least, most int64, power bool, field func(*Target, *Settings) *int64) func(*Target, *Settings, string) string {
	return func(t *Target, s *Settings, value string) string {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least || n > most || power && n&(n-1) != 0 {
			kind := "number"
			if power {
				kind = "power of two"
			}
			return fmt.Sprintf("must be a %s from %d to %d", kind, least, most)
		}
		*field(t, s) = n
		return ""
	}
}

func (t *Target) readParameters(query string, set *Settings, bad func(field, format string, args ...any)) {
	values, err := url.ParseQuery(query)
	if err != nil {
		bad("url", "what is behind the ? cannot be read: it has a %% that does not begin an escaped byte, or a ;")
		return
	}
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0:
			unknown++ // not repeated: it may be the rest of a password
		case len(given) > 1:
			bad(name, "%s is given %d times", name, len(given))
		default:
			t.given[name] = true
		}
	}
	if unknown > 0 {
		names := make([]string, len(parameters))
		for i := range parameters {
			names[i] = parameters[i].name
		}
		bad("url", "%d of the parameters behind the ? are unknown; those that are known are %s", unknown, strings.Join(names, ", "))
	}
	for i := range parameters {
		if p := &parameters[i]; t.given[p.name] {
			if problem := p.set(t, set, values.Get(p.name)); problem != "" {
				bad(p.name, "%s %s", p.name, problem)
			}
		}
	}
}
