package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Where a request ends is never left to interpretation: it is refused, or nothing follows
// it over the connection.
func TestFraming(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Seen", r.Header.Get("X-A")+"|"+string(body)+"|"+r.Header.Get("Upgrade"))
	}).URL))
	const (
		post   = "POST / HTTP/1.1\r\nHost: h\r\n"
		post10 = "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n"
		chunks = "1\r\nx\r\n0\r\n\r\n"
	)
	for name, tt := range map[string]struct {
		text   string
		status int
		seen   string // X-A, the body and Upgrade as the server gets them
		next   bool   // the next request is answered
	}{
		"a length":                        {post + "Content-Length: 1\r\n\r\nx", 200, "|x|", true},
		"a length twice":                  {post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 200, "|x|", true},
		"two lengths":                     {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400, "", false},
		"two lengths in a line":           {post + "Content-Length: 1, 1\r\n\r\nx", 400, "", false},
		"a signed length":                 {post + "Content-Length: +1\r\n\r\nx", 400, "", false},
		"an empty length":                 {post + "Content-Length:\r\n\r\nx", 400, "", false},
		"chunks":                          {post + "Transfer-Encoding: chunked\r\n\r\n" + chunks, 200, "|x|", false},
		"a length and chunks":             {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 200, "|x|", false},
		"chunks and a length":             {post + "Transfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n" + chunks, 200, "|x|", false},
		"chunks twice":                    {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 501, "", false},
		"chunks twice in a line":          {post + "Transfer-Encoding: chunked, chunked\r\n\r\n" + chunks, 501, "", false},
		"identity":                        {post + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx", 501, "", false},
		"another coding":                  {post + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks, 501, "", false},
		"chunks behind an odd space":      {post + "Transfer-Encoding: \x0bchunked\r\n\r\n" + chunks, 400, "", false},
		"chunks in HTTP/1.0":              {post10 + "Transfer-Encoding: chunked\r\n\r\n" + chunks, 411, "", false},
		"a length and chunks in HTTP/1.0": {post10 + "Content-Length: 11\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 200, "|" + chunks + "|", false},
		"a length in HTTP/1.0":            {post10 + "Content-Length: 1\r\n\r\nx", 200, "|x|", false},
		"nothing in HTTP/1.0":             {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, "||", false},
		"an extension of a chunk":         {post + "Transfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n", 200, "|x|", false},
		"trailers":                        {post + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nContent-Length: 9\r\n\r\n", 200, "|x|", false},
		"a folded line":                   {post + "X-A: a\r\n b\r\nContent-Length: 1\r\n\r\nx", 200, "a b|x|", true},
		"a folded first line":             {"POST / HTTP/1.1\r\n X-A: a\r\nHost: h\r\n\r\n", 400, "", false},
		"a CR alone":                      {post + "X-A: a\rContent-Length: 1\r\n\r\n", 400, "", false},
		"a space before the colon":        {post + "Content-Length : 1\r\n\r\nx", 400, "", false},
		"an upgrade with a body":          {post + "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx", 200, "|x|", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := raw(t, g.addr, tt.text+"GET /next HTTP/1.1\r\nHost: h\r\nX-A: next\r\n\r\n")
			res, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Fatal(err)
			}
			if seen := res.Header.Get("Seen"); res.StatusCode != tt.status || seen != strings.ReplaceAll(tt.seen, "\r\n", "  ") {
				t.Errorf("%s, and the server has seen %q; want %d and %q", res.Status, seen, tt.status, tt.seen)
			}
			res, err = http.ReadResponse(from, nil)
			if tt.next {
				if err != nil || res.Header.Get("Seen") != "next||" {
					t.Errorf("the next request is answered with %v, %v", res, err)
				}
			} else if !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(errText(err), "reset") {
				t.Errorf("the next request is answered with %v, %v", res, err)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What an upstream server says that is no answer, by its status or by how it is framed,
// is none, and the client's connection goes on.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	const body = "Content-Length: 2\r\n\r\nok"
	for name, text := range map[string]string{
		"status 000":        "HTTP/1.1 000 a\r\n" + body,
		"status 099":        "HTTP/1.1 099 a\r\n" + body,
		"status 1000":       "HTTP/1.1 1000 a\r\n" + body,
		"two lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + body,
		"a zero byte":       "HTTP/1.1 200 OK\r\nX: a\x00b\r\n" + body,
		"a CR":              "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n" + body,
		"an unknown coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"an upgrade":        "HTTP/1.1 101 a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"headers too large": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", maxResponseHeader) + "\r\n" + body,
		"half of it":        "HTTP/1.1 200 OK\r\nConten",
		"nothing":           "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, text)
				_ = conn.Close()
			})
			g := serveGateway(t, decider(t, nil), to(up.URL))
			from := raw(t, g.addr, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 2))
			for range 2 {
				res, err := http.ReadResponse(from, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					t.Fatal(err)
				}
				if res.StatusCode != http.StatusBadGateway {
					t.Errorf("the answer is %s", res.Status)
				}
			}
			if strings.Contains(g.log.String(), "panic") {
				t.Errorf("the log is\n%s", g.log)
			}
		})
	}
}
