package main

import (
	"bufio"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sort"
	"testing"
	"time"

	"github.com/headgate/headgate/httplimit"
)

var combined = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^]]+)\] "(\S+) `)

// A recorded log, played to the server over HTTP as any program could: it must
// deny exactly the requests that a count over lists of times denies.
func TestReplay(t *testing.T) {
	t.Parallel()
	handler, err := newHandler(slog.New(slog.DiscardHandler), httplimit.XRateLimit, true)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	f, err := os.Open("../../httplimit/testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var requests [][]string // client, time and method, as the log has them
	for s := bufio.NewScanner(z); s.Scan(); {
		m := combined.FindStringSubmatch(s.Text())
		if m == nil {
			t.Fatalf("a line is not in combined format: %s", s.Text())
		}
		requests = append(requests, m[1:])
	}
	when := func(i int) time.Time {
		at, err := time.Parse(logTime, requests[i][1])
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	sort.SliceStable(requests, func(i, j int) bool { return when(i).Before(when(j)) })

	admitted := make(map[string][]time.Time)
	denied := 0
	for i, r := range requests {
		req, err := http.NewRequest(r[2], server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", r[0])
		req.Header.Set("X-Replay-Time", r[1])
		res, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()

		minute, moment := 0, 0
		for _, at := range admitted[r[0]] {
			if age := when(i).Sub(at); age < time.Minute {
				minute++
				if age < 3*time.Second {
					moment++
				}
			}
		}
		want := http.StatusOK
		if minute >= 20 || moment >= 5 {
			want = http.StatusTooManyRequests
			denied++
		} else {
			admitted[r[0]] = append(admitted[r[0]], when(i))
		}
		if res.StatusCode != want {
			t.Fatalf("request %d of %s at %s: %s, want %d", i+1, r[0], r[1], res.Status, want)
		}
	}
	if denied == 0 {
		t.Error("the log tries no limit")
	}
	t.Logf("%d of %d denied", denied, len(requests))
}

func TestReplayNeedsTheTime(t *testing.T) {
	t.Parallel()
	handler, err := newHandler(slog.New(slog.DiscardHandler), httplimit.NoHeaders, true)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("%d, want 400", w.Code)
	}
}

func TestSearchCostsThree(t *testing.T) {
	t.Parallel()
	handler, err := newHandler(slog.New(slog.DiscardHandler), httplimit.XRateLimit, false)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/search", nil))
	if w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Remaining") != "2" {
		t.Errorf("%d, remaining %q; want 200, 2", w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
}
