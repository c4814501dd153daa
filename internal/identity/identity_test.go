package identity

import (
	"net/netip"
	"strings"
	"testing"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line, token string
		unclear     bool
	}{
		{"Bearer k1", "k1", false},
		{"bEARER   k1 \t", "k1", false},
		{" \tBearer k1", "k1", false},
		{"Bearer", "", false},
		{"Bearer ", "", false},
		{"Bearer  \t", "", false},
		{"", "", false},
		{"Bearers k1 2", "", false},
		{"Basic k1", "", false},
		{"Digest a, b", "", false},
		{"Bearer,k1 1", "", false},
		{"Bearer k1,k2", "k1,k2", false},
		{"Bearer k1 1", "", true},
		{"Bearer 1 k1", "", true},
		{"Bearer k1\t1", "", true},
		{"Bearer\tk1", "", true},
		{"Bearer \tk1", "", true},
		{"Bearer k1\u00a01", "", true},
		{"Bearer\u00a0k1", "", true},
		{"\u00a0Bearer k1", "", true},
		{"Bearer k1\u2028", "", true},
		{"Bearer k1\xa01", "", true},
		{"Bearer\x0bk1", "", true},
		{"Bearer ké", "", true},
	} {
		if token, ok := Bearer(tt.line); token != tt.token || ok == tt.unclear {
			t.Errorf("Bearer(%q) = %q, %t", tt.line, token, ok)
		}
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Example.COM": "example.com", "example.com:8080": "example.com", "example.com.": "example.com",
		"example.com:": "example.com", "example.com:000080": "example.com", "example.com.:80": "example.com", "a:b": "a:b",
		"[2001:DB8::1]:80": "[2001:db8::1]", "[2001:db8::1]": "[2001:db8::1]", "": "",
	} {
		if got := Hostname(in); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", in, got, want)
		}
	}
}

// Names are written as in the map: HTTP and gRPC have different cases.
func TestAPIKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		headers map[string][]string
		names   []string
		key     string
		unclear string
	}{
		{map[string][]string{"Authorization": {"Bearer k1"}, "X-Api-Key": {"k2"}}, []string{"Authorization", "X-Api-Key"}, "k1", ""},
		{map[string][]string{"authorization": {"bearer k1"}, "x-api-key": {"k2"}}, []string{"authorization", "x-api-key"}, "k1", ""},
		{map[string][]string{"Authorization": {"Basic k1"}, "X-Api-Key": {" k2\t"}}, []string{"Authorization", "X-Api-Key"}, "k2", ""},
		{map[string][]string{"Authorization": {"Basic x", "Bearer k1"}}, []string{"Authorization"}, "k1", "Authorization is there 2 times"},
		{map[string][]string{"x-api-key": {"k1", "k1"}}, []string{"authorization", "x-api-key"}, "k1", "x-api-key is there 2 times"},
		{map[string][]string{"Authorization": {"Bearer k1 1"}}, []string{"Authorization"}, "", "more than one word"},
		{map[string][]string{"authorization": {"Bearer k1 1"}}, []string{"authorization"}, "", "more than one word"},
		{map[string][]string{"Authorization": {"Bearer k1 1"}, "X-Api-Key": {"a b"}}, []string{"X-Api-Key"}, "a b", ""},
		{nil, []string{"Authorization"}, "", ""},
	} {
		if key, unclear := APIKey(tt.headers, tt.names), Unclear(tt.headers, tt.names); key != tt.key || (unclear == "") != (tt.unclear == "") || !strings.Contains(unclear, tt.unclear) {
			t.Errorf("%v: %q, unclear %q; want %q, %q", tt.headers, key, unclear, tt.key, tt.unclear)
		}
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
