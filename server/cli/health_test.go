package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		body       string
		args       []string
		path, want string
		code       int
	}{
		"ready":         {http.StatusOK, `{"status":"ready"}`, nil, "/readyz", "ready\n", CodeOK},
		"detail":        {http.StatusOK, `{"status":"ready","detail":"deciding locally"}`, nil, "/readyz", "ready: deciding locally\n", CodeOK},
		"live":          {http.StatusOK, `{"status":"ok"}`, []string{"--live"}, "/healthz", "ok\n", CodeOK},
		"not ready":     {http.StatusServiceUnavailable, `{}`, nil, "/readyz", "cannot decide", CodeNo},
		"somebody else": {http.StatusOK, "<html>", nil, "/readyz", "is no Headgate server", CodeUnavailable},
		"not found":     {http.StatusNotFound, "", nil, "/readyz", "is no Headgate server", CodeUnavailable},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != c.path {
				t.Errorf("%s: asked for %s, want %s", name, r.URL.Path, c.path)
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		var out bytes.Buffer
		code := Run(t.Context(), append([]string{"health", "--server", server.URL}, c.args...), &out, &out, "")
		server.Close()
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", name, code, out.String(), c.code, c.want)
		}
	}
}

// A token is not sent where a server redirects to.
func TestRedirectIsNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a server was asked that nobody named, with Authorization %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	t.Setenv("HEADGATE_ADMIN_TOKEN", "0123456789abcdef0123456789abcdef")
	for _, command := range []string{"candidate", "health", "top"} {
		var out bytes.Buffer
		if code := Run(t.Context(), []string{command, "--server", server.URL}, &out, &out, ""); code != CodeUnavailable {
			t.Errorf("%s: exit code %d, %q; want %d", command, code, out.String(), CodeUnavailable)
		}
	}
}
