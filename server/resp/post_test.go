package resp

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// said answers with what it was asked.
func said(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength {
			t.Errorf("read %q of %d bytes: %v", body, r.ContentLength, err)
		}
		if len(r.Header) != 1 || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the headers are %v", r.Header)
		}
		if r.URL.Path == "/nothing" {
			return
		}
		if len(w.Header()) != 0 {
			t.Errorf("the headers of another answer: %v", w.Header())
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "9000")
		if r.URL.Path == "/many" {
			for _, name := range []string{"X-F", "X-B", "X-D", "X-A", "X-E", "X-C"} {
				w.Header().Set(name, "1")
			}
		} else if r.URL.Path != "/plain" {
			w.Header()["X-Two"] = []string{"a", "b"}
		}
		w.WriteHeader(http.StatusTooManyRequests)
		w.WriteHeader(http.StatusOK)
		fmt.Fprintf(w, "%s|%s|%s|", r.Method, r.URL.Path, r.URL.RawQuery)
		fmt.Fprintf(w, "%s", body)
	})
}

// TestPost: a call of the HTTP API is answered with its status, its headers and its body.
func TestPost(t *testing.T) {
	for _, o := range []Options{{}, {SideBySide: true}, {InstantPath: func(path string) bool { return path == "/plain" }}} {
		o.API = said(t)
		_, addr := start(t, over(samplePolicy(t), memory.New()), o)
		c := dial(t, addr)
		list := []exchange{
			{"HG.POST /v1/check?at=true {}", "[429 [X-Two a, b] POST|/v1/check|at=true|{}]"},
			{"hg.post /plain _", "[429 [] POST|/plain||]"},
			{"HG.POST /many {}", "[429 [X-A 1 X-B 1 X-C 1 X-D 1 X-E 1 X-F 1] POST|/many||{}]"},
			{"HG.POST _ _", "[429 [X-Two a, b] POST|||]"},
			{"HG.POST /nothing {}", "-UNAVAILABLE the server is ending; whether the request was charged is not known"},
			{"HG.POST /plain", "-ERR wrong number of arguments for HG.POST: 1; write HG.POST path body"},
			{"HG.POST /plain " + strings.Repeat("x", 60_000), "[429 [] POST|/plain||" + strings.Repeat("x", 60_000) + "]"},
		}
		c.exchanges(list)
		// And together, in order.
		var all strings.Builder
		for _, e := range list {
			all.WriteString(wireLine(e.send))
		}
		go c.write(all.String())
		for _, e := range list {
			if got := c.answer(); got != e.want {
				t.Errorf("%.40s is answered with %.80s, want %.80s", e.send, got, e.want)
			}
		}
		c.do("HELLO 3")
		c.exchanges([]exchange{{"HG.POST /v1/check {}", "[429 {X-Two: a, b} POST|/v1/check||{}]"}})
	}
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{{"HG.POST /v1/check {}", "-ERR HG.POST: the HTTP API is not served here"}})
}
