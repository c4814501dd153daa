package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestParseURL(t *testing.T) {
	tests := []struct {
		url, address, user, password string
		database                     int
		tls                          bool
	}{
		{url: "redis://localhost", address: "localhost:6379"},
		{url: "redis://127.0.0.1:7000/3", address: "127.0.0.1:7000", database: 3},
		{url: "redis://[::1]:7000/", address: "[::1]:7000"},
		{url: "redis://:secret@h", address: "h:6379", password: "secret"},
		{url: "redis://ann:p%40ss%2Fw@h:1/15", address: "h:1", user: "ann", password: "p@ss/w", database: 15},
		{url: "rediss://h:6380", address: "h:6380", tls: true},
	}
	for _, test := range tests {
		o, err := parseURL(test.url)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		if o.InitAddress[0] != test.address || o.Username != test.user || o.Password != test.password ||
			o.SelectDB != test.database || (o.TLSConfig != nil) != test.tls {
			t.Errorf("%s: got address %v, user %q, password %q, database %d, TLS %v", test.url, o.InitAddress, o.Username, o.Password, o.SelectDB, o.TLSConfig != nil)
		}
		if !o.DisableRetry {
			t.Errorf("%s: the client may send a call twice", test.url)
		}
	}
}

func TestParseURLMistakes(t *testing.T) {
	tests := []struct{ url, want string }{
		{"http://h", `the scheme is "http"`},
		{"localhost:6379", "the scheme is"},
		{"redis://", "there is no host"},
		{"redis://h/x", "not a number from 0"},
		{"redis://h/-1", "not a number from 0"},
		{"redis://h?db=1", "parameters"},
		{"redis://user:sec ret@h:y", "cannot be read"},
		{"redis://user:top/secret@h", ""},
	}
	for _, test := range tests {
		_, err := parseURL(test.url)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.url, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%s: the error repeats the password: %v", test.url, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis://user:password@127.0.0.1:6379/0")
	f.Add("rediss://[::1]")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseURL(text)
		if err == nil && (len(o.InitAddress) != 1 || o.InitAddress[0] == "" || o.SelectDB < 0) {
			t.Errorf("%q was read as %+v", text, o)
		}
	})
}

func TestSettings(t *testing.T) {
	set := settings{prefix: strings.Repeat("p", 65), timeout: -time.Second}
	err := set.check()
	if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "65 bytes") || !strings.Contains(err.Error(), "-1s") {
		t.Errorf("got %v, want both mistakes", err)
	}
}
