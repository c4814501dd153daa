package memcached

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestCheckURL(t *testing.T) {
	for _, url := range []string{
		"memcached://127.0.0.1",
		"memcached://127.0.0.1:11211",
		"memcached://[::1]:11211,[::2],cache.internal?prefix=a:&timeout=20ms&connections=4&max_pending=10&skew=200ms",
	} {
		if err := CheckURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, want := range map[string]string{
		"redis://127.0.0.1":               "memcached://",
		"127.0.0.1:11211":                 "memcached://",
		"memcached://":                    "server 1 is not a host",
		"memcached://a,:1":                "server 2 is not a host",
		"memcached://a:99999":             "server 1 is not a host",
		"memcached://u:p@a":               "it has a user",
		"memcached://a/0":                 "a path",
		"memcached://a?timeout=soon":      "timeout must be",
		"memcached://a?connections=many":  "connections must be a number",
		"memcached://a?connections=0":     "there are 0 connections",
		"memcached://a?max_pending=a":     "max_pending must be a number",
		"memcached://a?skew=little":       "skew must be",
		"memcached://a?skew=-1s":          "the skew is -1s",
		"memcached://a?database=3":        `"database" is unknown`,
		"memcached://a?timeout=1ms;b=%zz": "cannot be read",
	} {
		if err := CheckURL(url); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want something with %q", url, err, want)
		}
	}
	if got := DescribeURL("memcached://a,b:7?timeout=1s"); got != "memcached://a:11211,b:7" {
		t.Errorf("described as %q", got)
	}
	if got := DescribeURL("memcached://a/b"); got != "a store" {
		t.Errorf("described as %q", got)
	}
}

// TestExpiration: never too early, in either of memcached's two ways to say it.
func TestExpiration(t *testing.T) {
	b := new(backend)
	for _, left := range []time.Duration{-time.Hour, 0, time.Microsecond, time.Second, time.Hour, 30*24*time.Hour - 2*time.Second} {
		if got := time.Duration(b.expiration(left.Microseconds())) * time.Second; got < left || got > max(left, 0)+2*time.Second {
			t.Errorf("%v: %v", left, got)
		}
	}
	left := 400 * 24 * time.Hour
	if got := time.Until(time.Unix(int64(b.expiration(left.Microseconds())), 0)); got < left || got > left+time.Minute {
		t.Errorf("%v: %v", left, got)
	}
	if got := b.expiration((100 * 366 * 24 * time.Hour).Microseconds()); got != 0 {
		t.Errorf("a hundred years: %d, want 0, for ever", got)
	}
}

func TestNames(t *testing.T) {
	long := name(strings.Repeat("\x00 ", 600))
	if len(long) > 250 || strings.ContainsAny(long, " \x00\r\n") || long == name("a") {
		t.Errorf("%q is no name for memcached", long)
	}
}

// TestNobodyThere: a server that is not there is an error.
func TestNobodyThere(t *testing.T) {
	if _, err := Open(t.Context(), "memcached://127.0.0.1:1"); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
