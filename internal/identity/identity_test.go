package identity

import (
	"log/slog"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
)

// TestKeyVectors and TestHostname: the tables of API keys and hosts that all languages share.
func TestKeyVectors(t *testing.T) {
	t.Parallel()
	usual := keys(t, textproto.CanonicalMIMEHeaderKey, "Authorization", "X-Api-Key")
	for _, tt := range vectors(t).APIKeys {
		h := make(http.Header)
		for _, line := range tt.Headers {
			h.Add(line[0], line[1])
		}
		if unclear := usual.Unclear(h) != ""; unclear != tt.Unclear || !unclear && usual.Of(h) != tt.Want {
			t.Errorf("%v: %q, unclear %q", h, usual.Of(h), usual.Unclear(h))
		}
	}
	// What is not UTF-8 cannot stand in the table.
	if usual.Unclear(http.Header{"Authorization": {"Bearer k1\xa01"}}) == "" {
		t.Error("a byte that is no character is part of a key")
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	for _, tt := range vectors(t).Hosts {
		if got, ok := Hostname(tt.Host); got != tt.Want || ok == tt.Unclear {
			t.Errorf("Hostname(%q) = %q, %t; want %q", tt.Host, got, ok, tt.Want)
		}
	}
}

// nginxHost is the host that nginx looks for among its server names, in its own way: it ends at the
// first colon or behind the bracket, and whatever stands there does not matter. It is "" for a host
// that nginx refuses. test/spelling asks nginx itself.
func nginxHost(text string) string {
	end, rest, literal, dot := len(text), false, false, -2
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.':
			if dot == i-1 {
				return ""
			}
			dot = i
		case c == ':' && !rest && !literal:
			end, rest = i, true
		case c == '[' && i == 0:
			literal = true
		case c == ']' && literal:
			end, rest, literal = i+1, true, false
		case c == '/' || c <= ' ' || c == 0x7f:
			return ""
		}
	}
	if dot == end-1 {
		end--
	}
	return strings.ToLower(text[:max(end, 0)])
}

// No host that is read is another one to nginx, and none has two spellings.
func FuzzHostname(f *testing.F) {
	for _, s := range []string{"example.com", "Example.com.:80", "a:80:80", "[::1]:80", "a..b", "a@b", "[::1]x:", ".:", "a.b.:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, ok := Hostname(s)
		if !ok || host == "" {
			if ok != (s == "") {
				t.Errorf("Hostname(%q) = %q, %t", s, host, ok)
			}
			return
		}
		if again, ok := Hostname(host); again != host || !ok {
			t.Errorf("%q is %q, which is %q, %t", s, host, again, ok)
		}
		if served := nginxHost(s); served != host && !(host[0] == '[' && strings.HasPrefix(served, "[")) {
			t.Errorf("%q is %q, and to nginx %q", s, host, served)
		}
		if withPort, ok := Hostname(host + ":8080"); withPort != host || !ok {
			t.Errorf("%q with a port is %q, %t", host, withPort, ok)
		}
	})
}

// keys are made of headers in the words of configurations.
func keys(t testing.TB, canonical func(string) string, texts ...string) *Keys {
	t.Helper()
	k := new(Keys)
	for _, text := range texts {
		if problem := k.Add(text, canonical); problem != "" {
			t.Fatal(problem)
		}
	}
	return k
}

func TestKeys(t *testing.T) {
	t.Parallel()
	canonical, grpc := textproto.CanonicalMIMEHeaderKey, strings.ToLower
	usual := keys(t, canonical, "authorization", "X-API-Key")
	metadata := keys(t, grpc, "Authorization", "x-api-key")
	token := keys(t, canonical, "Authorization:Token", "authorization: ApiKey ", "X-Auth:Key")
	whatever := keys(t, canonical, "Authorization:*", "X-Api-Key")
	for _, tt := range []struct {
		keys    *Keys
		headers map[string][]string
		key     string
		unclear string
	}{
		{usual, map[string][]string{"Authorization": {"Bearer k1"}, "X-Api-Key": {"k2"}}, "k1", ""},
		{metadata, map[string][]string{"authorization": {"bearer k1"}, "x-api-key": {"k2"}}, "k1", ""},
		{usual, map[string][]string{"Authorization": {"Basic k1"}, "X-Api-Key": {" k2\t"}}, "k2", ""},
		{usual, map[string][]string{"Authorization": {"Basic x", "Bearer k1"}}, "k1", "Authorization is there 2 times"},
		{metadata, map[string][]string{"x-api-key": {"k1", "k1"}}, "k1", "x-api-key is there 2 times"},
		{usual, map[string][]string{"Authorization": {"Bearer k1 1"}}, "", "more than one word"},
		{metadata, map[string][]string{"authorization": {"Bearer k1 1"}}, "", "more than one word"},
		{keys(t, canonical, "X-Api-Key"), map[string][]string{"Authorization": {"Bearer k1 1"}, "X-Api-Key": {"a b"}}, "a b", ""},
		{usual, nil, "", ""},
		{token, map[string][]string{"Authorization": {"token k1"}}, "k1", ""},
		{token, map[string][]string{"Authorization": {"ApiKey  k1"}}, "k1", ""},
		{token, map[string][]string{"Authorization": {"Token k1 1"}}, "", "more than one word"},
		{token, map[string][]string{"Authorization": {"Token k1"}, "X-Auth": {"Key k2"}}, "k1", ""},
		{token, map[string][]string{"Authorization": {"Bearer k1"}, "X-Auth": {"Key k2"}}, "k2", ""},
		{token, map[string][]string{"Authorization": {"Bearer k1"}, "X-Auth": {"k2"}}, "", ""},
		{whatever, map[string][]string{"Authorization": {"Foo k1"}}, "k1", ""},
		{whatever, map[string][]string{"Authorization": {"k1"}, "X-Api-Key": {"k2"}}, "k1", ""},
		{whatever, map[string][]string{"Authorization": {" k1 \t"}}, "k1", ""},
		{whatever, map[string][]string{"Authorization": {"\u00a0k1"}}, "", "more than one word"},
		{whatever, map[string][]string{"Authorization": {"Foo k1 1"}}, "", "more than one word"},
		{whatever, map[string][]string{"Authorization": {"Foo\tk1"}}, "", "more than one word"},
		{whatever, map[string][]string{"X-Api-Key": {"k2"}}, "k2", ""},
	} {
		if key, unclear := tt.keys.Of(tt.headers), tt.keys.Unclear(tt.headers); key != tt.key || (unclear == "") != (tt.unclear == "") || !strings.Contains(unclear, tt.unclear) {
			t.Errorf("%v: %q, unclear %q; want %q, %q", tt.headers, key, unclear, tt.key, tt.unclear)
		}
	}
	for _, text := range []string{"", "X Y", "Authorization:", "Authorization:a b", ":Token", "X-Key,Y"} {
		if new(Keys).Add(text, canonical) == "" {
			t.Errorf("%q is taken for the header of a key", text)
		}
	}
	for _, tt := range []struct {
		keys *Keys
		want string
	}{{usual, "Bearer"}, {token, "Token"}, {whatever, "Bearer"}, {keys(t, canonical, "X-Key"), `ApiKey header="X-Key"`}} {
		if got := tt.keys.Challenge(); got != tt.want {
			t.Errorf("the challenge for %v is %s", tt.keys.Names(), got)
		}
	}
}

// What becomes the same variable as a key's header is told from what does not.
func TestAlike(t *testing.T) {
	t.Parallel()
	k := keys(t, textproto.CanonicalMIMEHeaderKey, "Authorization", "X-Api-Key")
	for name, alike := range map[string]bool{
		"X_Api_Key": true, "x_api-key": true, "X.Api.Key": true, "X~Api_key": true, "X-Api_Key": true,
		"X-Api-Key": false, "x-api-key": false, "XApiKey": false, "X_Api_Keys": false, "X_Api": false, "Authorization": false, "Author_ization": false,
	} {
		why := k.Confusable(map[string][]string{"Accept": {"*/*"}, name: {"k"}})
		if (why != "") != alike || alike && !strings.Contains(why, name+" is the same as X-Api-Key") {
			t.Errorf("%s: %q", name, why)
		}
		if !Usual(name) != (Variable(name) != strings.ToLower(strings.ReplaceAll(name, "-", "_")) || strings.Contains(name, "_")) {
			t.Errorf("%s is usual: %t", name, Usual(name))
		}
	}
}

// The log is told once, and of the header alone.
func TestUnread(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger, u := slog.New(slog.NewTextHandler(&log, nil)), new(Unread)
	u.Look(t.Context(), logger, map[string][]string{"Accept": {"*/*"}})
	if log.Len() > 0 {
		t.Errorf("told of nothing: %s", &log)
	}
	for range 3 {
		u.Look(t.Context(), logger, map[string][]string{"Authorization": {"Token secret"}})
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "header=Authorization") || strings.Contains(text, "secret") {
		t.Errorf("the log is %s", text)
	}
}

// parseNode against an independent reading of the same forms.
func FuzzParseNode(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "1.2.3.4:5", "[::1]:5", "::1", "::ffff:1.2.3.4", "fe80::1%a", "[fe80::1%25a]", "1.2.3.4:", ":1", "%", "[]", "]["} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parseNode(s)
		if !ok {
			if plain, err := netip.ParseAddr(s); err == nil && plain.Zone() == "" && !plain.Unmap().IsUnspecified() {
				t.Errorf("%q is refused", s)
			}
			return
		}
		if again, ok := parseNode(a.String()); !ok || again != a {
			t.Errorf("%q is %v, which is read as %v", s, a, again)
		}
		if a.Is4() && !strings.Contains(s, a.String()) && !strings.Contains(s, ":") {
			t.Errorf("%q is read as %v", s, a)
		}
	})
}
