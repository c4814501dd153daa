package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
)

func TestParsePart(t *testing.T) {
	for _, c := range []struct {
		text string
		want Part
		err  string // part of the text
	}{
		{"user", Part{Entry: "user"}, ""},
		{"ip/64", Part{Entry: "ip", Bits6: 64}, ""},
		{"ip/24/64", Part{Entry: "ip", Bits4: 24, Bits6: 64}, ""},
		{"", Part{}, "the name has 0 bytes"},
		{"a b", Part{}, "' ' at byte 1"},
		{"ip/", Part{}, `prefix length "" is not a whole number from 1 to 128`},
		{"ip/0", Part{}, `prefix length "0" is not a whole number from 1 to 128`},
		{"ip/129", Part{}, "from 1 to 128"},
		{"ip/33/64", Part{}, "from 1 to 32"},
		{"ip/24/x", Part{}, `"x"`},
		{"ip/1/2/3", Part{}, "write it as user, ip/64 or ip/24/64"},
	} {
		p, err := ParsePart(c.text)
		if p != c.want || (err == nil) != (c.err == "") {
			t.Errorf("ParsePart(%q) = %v, %v", c.text, p, err)
		}
		if err != nil && (!errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("ParsePart(%q): error %q does not say %q", c.text, err, c.err)
		}
		if err == nil && p.String() != c.text {
			t.Errorf("ParsePart(%q).String() = %q", c.text, p)
		}
	}
}

func FuzzParsePart(f *testing.F) {
	for _, s := range []string{"user", "ip/64", "ip/24/64", "ip/0", "a/b/c/d", "ip/+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePart(s)
		if err != nil {
			return
		}
		again, err := ParsePart(p.String())
		if err != nil || again != p {
			t.Errorf("%q reads as %+v, whose text %q reads as %+v, %v", s, p, p.String(), again, err)
		}
	})
}

// keyOf returns the key that one rule counts the descriptor under.
func keyOf(t *testing.T, d Descriptor, opts []Option, parts ...string) (string, bool) {
	t.Helper()
	r := Rule{Limits: headgate.MustRule("r", headgate.PerMinute(1))}
	for _, s := range parts {
		p, err := ParsePart(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Per = append(r.Per, p)
	}
	s, err := New([]Rule{r}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := s.Match(d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(checks) == 0 {
		return "", false
	}
	return checks[0].Key, true
}

func TestAddressKeys(t *testing.T) {
	for _, c := range []struct{ part, value, want string }{
		{"ip", "203.0.113.10", "203.0.113.10"},
		{"ip", "::ffff:203.0.113.10", "203.0.113.10"},
		{"ip", "::FFFF:cb00:710a", "203.0.113.10"},
		{"ip", "2001:DB8:0:0::0001", "2001:db8::1"},
		{"ip", "fe80::1%eth0", "fe80::1"},
		{"ip", "not an address", "not an address"},
		{"ip", "203.0.113.10:443", "203.0.113.10:443"},
		{"ip/64", "203.0.113.10", "203.0.113.10"},
		{"ip/64", "::ffff:203.0.113.10", "203.0.113.10"},
		{"ip/64", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"ip/128", "2001:db8::1", "2001:db8::1"},
		{"ip/64", "unix", "unix"},
		{"ip/24/48", "203.0.113.10", "203.0.113.0/24"},
		{"ip/24/48", "::ffff:203.0.113.10", "203.0.113.0/24"},
		{"ip/24/48", "2001:db8:1:2::1", "2001:db8:1::/48"},
		{"peer/64", "2001:db8::1", "2001:db8::/64"},
		{"peer", "2001:DB8::1", "2001:DB8::1"},
	} {
		d := Descriptor{{strings.Split(c.part, "/")[0], c.value}}
		if key, ok := keyOf(t, d, nil, c.part); key != c.want || !ok {
			t.Errorf("%s of %q = %q, %v; want %q", c.part, c.value, key, ok, c.want)
		}
	}
}

func TestJoinedKeys(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"x", "y", `x|y`},
		{"x|", "y", `x\||y`},
		{"x", "|y", `x|\|y`},
		{`x\`, "y", `x\\|y`},
		{`x\|`, "y", `x\\\||y`},
	} {
		d := Descriptor{{"a", c.a}, {"b", c.b}}
		if key, _ := keyOf(t, d, nil, "a", "b"); key != c.want {
			t.Errorf("(%q, %q) joined to %q, want %q", c.a, c.b, key, c.want)
		}
	}
	d := Descriptor{{"ip", "2001:db8::1"}, {"user", "ada"}}
	if key, _ := keyOf(t, d, nil, "ip/64", "user"); key != "2001:db8::/64|ada" {
		t.Errorf("key is %q", key)
	}
	if key, ok := keyOf(t, d, nil, "ip/64", "tenant"); ok {
		t.Errorf("key without a tenant is %q, want none", key)
	}
}

// FuzzJoinedKeys proves that two lists of values make one key only if they are
// the same, and that a joined key can be taken apart.
func FuzzJoinedKeys(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("a|b", "c", "a", "b|c")
	f.Add(`a\`, "c", "a", `\c`)
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		join := func(x, y string) string {
			return string(appendEscaped(append(appendEscaped(nil, x), separator), y))
		}
		if (a != c || b != d) && join(a, b) == join(c, d) {
			t.Errorf("(%q, %q) and (%q, %q) both make %q", a, b, c, d, join(a, b))
		}
		if parts, ok := split(join(a, b), 2); !ok || !slices.Equal(parts, []string{a, b}) {
			t.Errorf("%q comes apart as %q", join(a, b), parts)
		}
	})
}

func TestLongKeys(t *testing.T) {
	long := strings.Repeat("v", headgate.MaxKey+1)
	single, _ := keyOf(t, Descriptor{{"a", long}}, nil, "a")
	other, _ := keyOf(t, Descriptor{{"a", long + "w"}}, nil, "a")
	joined, _ := keyOf(t, Descriptor{{"a", long[1:]}, {"b", "x"}}, nil, "a", "b")
	for _, key := range []string{single, other, joined} {
		if len(key) > 64 || key[0] != 0 {
			t.Errorf("a long key became %q", key)
		}
	}
	if single == other || single == joined {
		t.Error("different long values share a key")
	}
	if whole, _ := keyOf(t, Descriptor{{"a", long[1:]}}, nil, "a"); whole != long[1:] {
		t.Errorf("a key of %d bytes became %q", headgate.MaxKey, whole)
	}
}

func TestSecretKeys(t *testing.T) {
	hashKey := []byte("0123456789abcdef")
	d := Descriptor{{"api_key", "k1"}, {"token", "k1"}, {"session", "k1"}, {"user", "k1"}}
	opts := []Option{HashKey(hashKey), Secrets("session")}

	mac := hmac.New(sha256.New, hashKey)
	mac.Write([]byte("api_key\x00k1"))
	want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	if key, _ := keyOf(t, d, opts, "api_key"); key != want {
		t.Errorf("keyed hash is %q, want %q", key, want)
	}
	sum := sha256.Sum256([]byte("headgate secret v1\x00api_key\x00k1"))
	want = base64.RawURLEncoding.EncodeToString(sum[:16])
	if key, _ := keyOf(t, d, nil, "api_key"); key != want {
		t.Errorf("hash without a key is %q, want %q", key, want)
	}
	seen := map[string]string{}
	for _, entry := range []string{"api_key", "token", "session"} {
		key, _ := keyOf(t, d, opts, entry)
		if strings.Contains(key, "k1") {
			t.Errorf("%s: the key %q has the secret in it", entry, key)
		}
		if first := seen[key]; first != "" {
			t.Errorf("%s and %s of one value have one key", first, entry)
		}
		seen[key] = entry
		again, _ := keyOf(t, d, opts, entry)
		if again != key {
			t.Errorf("%s: hashed to %q and to %q", entry, key, again)
		}
	}
	if key, _ := keyOf(t, d, opts, "user"); key != "k1" {
		t.Errorf("user became %q", key)
	}
	if key, _ := keyOf(t, d, opts, "user", "session"); !strings.HasPrefix(key, "k1|") || strings.Count(key, "k1") != 1 {
		t.Errorf("the joined key is %q", key)
	}
	if key, _ := keyOf(t, d, nil, "session"); key != "k1" {
		t.Errorf("session, not named secret, became %q", key)
	}
}

func TestMatchAllocations(t *testing.T) {
	limits := headgate.MustRule("r", headgate.Sliding(20, time.Minute))
	secret := 1.0
	if race.Enabled { // pools drop states at random, so that what they hold is allocated anew
		secret = 20
	}
	for _, c := range []struct {
		name  string
		parts []string
		most  float64
	}{
		{"one for all", nil, 0},
		{"plain", []string{"user"}, 0},
		{"address", []string{"ip"}, 0},
		{"address cut", []string{"ip6/64"}, 1},
		{"joined", []string{"user", "ip"}, 1},
		{"secret", []string{"api_key"}, secret},
	} {
		r := Rule{Limits: limits, Match: []Condition{Equal("route", "GET /", "POST /")}}
		for _, text := range c.parts {
			p, err := ParsePart(text)
			if err != nil {
				t.Fatal(err)
			}
			r.Per = append(r.Per, p)
		}
		s, err := New([]Rule{r}, HashKey(make([]byte, 32)))
		if err != nil {
			t.Fatal(err)
		}
		d := Descriptor{{"api_key", "k1"}, {"ip", "203.0.113.10"}, {"ip6", "2001:db8::1"}, {"user", "ada"}, {"route", "GET /"}}
		checks := make([]headgate.Check, 0, 4)
		if n := testing.AllocsPerRun(100, func() { checks, _ = s.Match(d, 1, checks[:0]) }); n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, n, c.most)
		}
		if len(checks) != 1 {
			t.Errorf("%s: %d checks", c.name, len(checks))
		}
	}
}
