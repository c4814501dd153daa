package serverbench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// TestMain lets the test binary stand in for the benchmark's program, so that the
// echo servers run as processes of their own, as they do in earnest.
func TestMain(m *testing.M) {
	if len(os.Args) == 8 && os.Args[1] == "echo" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := Echo(ctx, os.Args[3], os.Args[5], os.Args[7])
		stop()
		if err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func TestServiceMeasuresEchoServers(t *testing.T) {
	plan, w := measure.Plan{Rounds: 2, Slice: time.Second, Callers: 4, Keys: 10}, &measure.Work{Program: os.Args[0]}
	text := new(report.Text)
	rows, err := besideJSON.measure(t.Context(), w, plan, text, echoes(w, plan))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if len(r.Samples[0]) != plan.Rounds {
			t.Fatalf("%s: %d samples, want %d", r.Name, len(r.Samples[0]), plan.Rounds)
		}
		for _, s := range r.Samples[0] {
			if s.Done == 0 || s.Server <= 0 {
				t.Errorf("%s: empty sample %+v", r.Name, s)
			}
		}
	}
	if !strings.Contains(text.String(), "| net/http JSON echo") {
		t.Errorf("the table lacks the JSON echo:\n%s", text)
	}
}

func TestSaturateReportsAServerThatDoesNotStart(t *testing.T) {
	absent := contender{name: "absent", command: []string{"/nonexistent/server"}}
	if _, err := saturate(t.Context(), new(measure.Work), measure.Plan{Rounds: 1}, []contender{absent}); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("the error is %v, want the contender named", err)
	}
}

func TestEchoes(t *testing.T) {
	body, err := json.Marshal(byRule("k1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]http.HandlerFunc{"bytes": echoBytes, "json": echoJSON} {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(string(body))))
		if w.Code != http.StatusOK || w.Body.String() != string(body) {
			t.Errorf("%s: answered %d %q, want %q", name, w.Code, w.Body, body)
		}
	}
	w := httptest.NewRecorder()
	echoJSON(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader("{")))
	if w.Code != http.StatusBadRequest {
		t.Errorf("half a document was answered with %d, want 400", w.Code)
	}
}

func TestEchoKnowsItsHandlers(t *testing.T) {
	if err := Echo(t.Context(), "127.0.0.1:0", "xml", ""); err == nil || !strings.Contains(err.Error(), "xml") {
		t.Errorf("the error is %v, want the handler named", err)
	}
}

func TestSkipHTTP(t *testing.T) {
	const good = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX: y\r\n\r\n{}"
	for _, c := range []struct{ name, answer, problem string }{
		{"good", good, ""},
		{"empty body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
		{"status", "HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\noops", "400: oops"},
		{"no length", "HTTP/1.1 200 OK\r\n\r\n", "no Content-Length"},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "Content-Length is"},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length is"},
		{"cut in the headers", "HTTP/1.1 200 OK\r\nCont", "headers"},
		{"cut in the body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "9 bytes"},
		{"nothing", "", "reading the answer"},
	} {
		err := skipHTTP(bufio.NewReader(strings.NewReader(c.answer)))
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: the error is %v, want %q in it", c.name, err, c.problem)
		}
	}
	r := bufio.NewReader(strings.NewReader(good + good))
	for i := range 2 {
		if err := skipHTTP(r); err != nil {
			t.Errorf("answer %d of two: %v", i+1, err)
		}
	}
}

func FuzzSkipHTTP(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
	f.Add("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n")
	f.Add("HTTP/1.1 200 \r\nContent-Length:\r\n:\r\n\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		r := strings.NewReader(answer)
		err := skipHTTP(bufio.NewReader(r))
		if err == nil && !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			t.Errorf("%q was taken for a success", answer)
		}
	})
}

func Example_echoJSON() {
	w := httptest.NewRecorder()
	echoJSON(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"checks": [{"rule": "bench", "key": "k1", "cost": 1}]}`)))
	fmt.Println(w.Code, w.Body)
	// Output: 200 {"checks":[{"rule":"bench","key":"k1","cost":1}]}
}
