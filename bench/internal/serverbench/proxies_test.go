package serverbench

import (
	"bufio"
	"strings"
	"testing"
)

func TestKeepOpen(t *testing.T) {
	t.Parallel()
	addr := proxied(t)
	open, err := keepOpen(t.Context(), addr, items(3), 5)
	if err != nil || len(open) != 5 {
		t.Errorf("%d connections are open, %v", len(open), err)
	}
	for _, c := range open {
		if _, err := c.Write(items(1)[0]); err != nil {
			t.Error(err)
		}
		if err := readDocument(bufio.NewReader(c)); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if open, err := keepOpen(t.Context(), addr, [][]byte{[]byte("nonsense\r\n\r\n")}, 5); err == nil || len(open) != 1 {
		t.Errorf("after a wrong answer %d connections are open, %v", len(open), err)
	}
}

// A proxy that answers without asking the upstream server is not measured.
func TestReadDocument(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                    "200 with 0 bytes",
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 3\r\n\r\nno\n": "429 with 3 bytes",
		"HTTP/1.1 200 OK\r\n\r\n":                                         "no Content-Length",
	} {
		if err := readDocument(bufio.NewReader(strings.NewReader(answer))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", answer, err, want)
		}
	}
}
