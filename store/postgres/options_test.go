package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestCheckURL(t *testing.T) {
	for _, url := range []string{
		"postgres://127.0.0.1/limits",
		"postgresql://user:pass%2Fword@db.internal:5432/limits?sslmode=verify-full",
		"postgres://user@[::1]:5433/limits?table=app.limits&prefix=a:&timeout=50ms&durable=true&unlogged=false&create=false&max_pending=10&pool_max_conns=20",
	} {
		if err := CheckURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, want := range map[string]string{
		"redis://127.0.0.1":                          "postgres://",
		"127.0.0.1":                                  "postgres://",
		"postgres://h/d?timeout=soon":                "timeout must be",
		"postgres://h/d?timeout=1h":                  "timeout must be",
		"postgres://h/d?durable=yes":                 "durable must be true or false",
		"postgres://h/d?max_pending=few":             "max_pending must be a number",
		"postgres://h/d?table=a-b":                   `"a-b"`,
		"postgres://h/d?table=a.b.c":                 `"a.b.c"`,
		"postgres://h/d?table=x%22;drop":             "cannot be read",
		"postgres://h:port/d":                        "the driver cannot read it",
		"postgres://h/d?pool_max_conns=many":         "the driver cannot read it",
		"postgres://user:hunter2@h/d?sslmode=always": "the driver cannot read it",
	} {
		err := CheckURL(url)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want something with %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", url, err)
		}
	}
}

func TestDescribeURL(t *testing.T) {
	if got := DescribeURL("postgres://user:hunter2@db:5433/limits?table=t"); got != "postgres://db:5433/limits" {
		t.Errorf("got %q", got)
	}
	if got := DescribeURL("postgres://user:hunter2@db:port/d"); got != "a store" {
		t.Errorf("got %q", got)
	}
	// Passwords that cut the URL in two, at places where a port or a host may stand.
	for _, url := range []string{"postgres://user:12/34@db/d", "postgres://user:12?34@db/d", "postgres://user:12@34@db/d"} {
		if err := CheckURL(url); !errors.Is(err, headgate.ErrInvalid) || strings.Contains(err.Error(), "12") || strings.Contains(err.Error(), "34") {
			t.Errorf("%s: %v; want ErrInvalid without the password", url, err)
		}
		if got := DescribeURL(url); got != "a store" {
			t.Errorf("%s is told as %q", url, got)
		}
	}
}

// TestNobodyThere: a server that is not there is an error by the context, without the
// password.
func TestNobodyThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := Open(ctx, "postgres://user:hunter2@127.0.0.1:1/limits")
	if !errors.Is(err, headgate.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want ErrUnavailable without the password", err)
	}
	if _, err := Open(ctx, "postgres://h/d", Table("No")); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a bad table: %v", err)
	}
}

func TestAfter(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a\xff": "b", "hg: ": "hg:!", "\xff": "", "": ""} {
		if got := string(after(prefix)); got != want {
			t.Errorf("after %q: %q, want %q", prefix, got, want)
		}
	}
}

// TestLocks: all processes take the same locks in the same order, each once.
func TestLocks(t *testing.T) {
	b := &backend{prefix: "t"}
	got := b.hashes([]string{"x", "y", "z", "x"})
	if len(got) != 3 || !slices.IsSorted(got) || !slices.Equal(got, b.hashes([]string{"z", "x", "y"})) {
		t.Errorf("the locks are %v", got)
	}
	if other := (&backend{prefix: "u"}).hashes([]string{"x"}); slices.Contains(got, other[0]) {
		t.Error("another table has the same locks")
	}
}
