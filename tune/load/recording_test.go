package load

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/tune/accesslog"
)

func recorded(t *testing.T, text string, most time.Duration, speed float64, forward string) (*Recording, []*Target) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := accesslog.Open(t.Context(), []string{name}, accesslog.Options{Format: "combined"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := NewRecording(Request{URL: "http://127.0.0.1:8080/ignored?x"}, most, speed, forward)
	if err != nil {
		t.Fatal(err)
	}
	for {
		s, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Add(s)
		s.Release()
	}
	all, err := r.Targets()
	if err != nil {
		t.Fatal(err)
	}
	return r, all
}

// TestRecording: what is sent is what the log has, without what cannot be sent.
func TestRecording(t *testing.T) {
	const text = `192.0.2.1 - - [17/May/2015:10:05:00 +0000] "GET /a?b=%2f HTTP/1.1" 200 1 "-" "-"
192.0.2.2 - - [17/May/2015:10:05:02 +0000] "POST /a HTTP/1.1" 200 1 "-" "-"
192.0.2.2 - - [17/May/2015:10:05:04 +0000] "GET /c HTTP/1.1" 200 1 "-" "-"
192.0.2.1 - - [17/May/2015:10:05:08 +0000] "GET /c HTTP/1.1" 200 1 "-" "-"
192.0.2.1 - - [17/May/2015:10:05:08 +0000] "GET http://elsewhere/c HTTP/1.1" 200 1 "-" "-"
192.0.2.1 - - [17/May/2015:10:05:08 +0000] "GET /%zz HTTP/1.1" 200 1 "-" "-"
192.0.2.1 - - [17/May/2015:10:05:20 +0000] "HEAD /c HTTP/1.1" 200 1 "-" "-"
`
	r, all := recorded(t, text, 0, 1, "")
	if r.Taken != 4 || r.Left != 3 || r.Arrivals != nil || len(all) != 3 || all[0].Name != "GET /c" || all[0].weight != 2 || all[0].url.String() != "http://127.0.0.1:8080/c" {
		t.Errorf("taken %d, left %d, %+v", r.Taken, r.Left, all)
	}
	r, all = recorded(t, text, 5*time.Second, 2, "X-Forwarded-For")
	if r.Taken != 3 || len(all) != 3 || len(r.Arrivals) != 3 {
		t.Fatalf("taken %d, arrivals %v", r.Taken, r.Arrivals)
	}
	for i, want := range []struct {
		at     time.Duration
		url    string
		client string
	}{{0, "/a?b=%2f", "192.0.2.1"}, {2 * time.Second, "/c", "192.0.2.2"}, {4 * time.Second, "/c", "192.0.2.1"}} {
		a := r.Arrivals[i]
		one := all[a.Target]
		if a.At.Round(time.Second) != want.at || one.url.RequestURI() != want.url || one.request.Header.Get("X-Forwarded-For") != want.client {
			t.Errorf("arrival %d is at %v, %s of %v", i, a.At, one.url, one.request.Header)
		}
	}
}
