package policy

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestSecretAddresses: an address that is secret is cut and brought to one spelling
// like any other, before it is hashed: else a client with a /64 had as many counters
// as addresses.
func TestSecretAddresses(t *testing.T) {
	secret := []Option{Secrets("ip", "peer")}
	for _, c := range []struct {
		part, a, b string
		same       bool
	}{
		{"ip/64", "2001:db8::1", "2001:db8::2", true},
		{"ip/64", "2001:db8::1", "2001:db8:0:1::1", false},
		{"ip", "2001:DB8::1", "2001:db8:0::1", true},
		{"ip", "2001:db8::1", "2001:db8::2", false},
		{"ip/24/64", "192.0.2.1", "::ffff:192.0.2.2", true},
		{"peer/64", "2001:db8::1", "2001:db8::2", true},
		{"ip/64", "not an address", "neither", false},
	} {
		entry, _, _ := strings.Cut(c.part, "/")
		for _, parts := range [][]string{{c.part}, {c.part, "user"}} {
			a, _ := keyOf(t, Descriptor{{entry, c.a}, {"user", "u"}}, secret, parts...)
			b, _ := keyOf(t, Descriptor{{entry, c.b}, {"user", "u"}}, secret, parts...)
			if (a == b) != c.same {
				t.Errorf("%v: %s is counted under %q, %s under %q; the same: want %t", parts, c.a, a, c.b, b, c.same)
			}
			if strings.Contains(a, c.a) {
				t.Errorf("%v: the key %q has the secret in it", parts, a)
			}
		}
	}
	s := mustNew(t, nil, secret...)
	if whole, _ := keyOf(t, Descriptor{{"ip", "2001:DB8::1"}}, secret, "ip"); whole != s.Hash("ip", "2001:db8:0::1") {
		t.Error("the hash of an address depends on its spelling")
	}
	s = mustNew(t, []Rule{rule("r", []Condition{Hashed("ip", s.Hash("ip", "2001:db8::1"))})}, secret...)
	if checks, err := s.Match(Descriptor{{"ip", "2001:DB8::1"}}, 1, nil); len(checks) != 1 {
		t.Errorf("an address in another spelling is not found by its hash: %v, %v", checks, err)
	}
}

// TestAddressConditions: what is asked of an address does not depend on how it is
// spelled.
func TestAddressConditions(t *testing.T) {
	for _, c := range []Condition{
		Prefix("ip", "2001:db8:"),
		Prefix("ip", "2001:DB8:"),
		{Entry: "ip", Prefixes: []string{"2001:db8:"}, Equals: []string{"::1"}},
		Equal("ip", "2001:DB8::1"),
	} {
		s := mustNew(t, []Rule{rule("r", []Condition{c})})
		for _, ip := range []string{"2001:db8::1", "2001:DB8::1", "2001:0db8::1"} {
			if checks, err := s.Match(Descriptor{{"ip", ip}}, 1, nil); len(checks) != 1 {
				t.Errorf("%+v does not hold for %s: %v, %v", c, ip, checks, err)
			}
		}
	}
}

// FuzzKeys proves that two requests are counted under one key only if the values that
// a rule counts by are the same, however long they are and whatever is in them.
func FuzzKeys(f *testing.F) {
	f.Add("a|b", "c", "a", "b|c", uint16(0))
	f.Add("x", "y", "x", "y", uint16(headgate.MaxKey))
	long := strings.Repeat("v", headgate.MaxKey+1)
	f.Add(long, "", shorten([]byte(long)), "", uint16(0))
	f.Add("\x00", "", "\x00\x00", "", uint16(0))
	var rules []*Set
	for _, parts := range [][]string{{"a"}, {"b"}, {"a", "b"}, {"api_key"}, {"api_key", "a"}} {
		s, err := New([]Rule{rule("r", nil, parts...)})
		if err != nil {
			f.Fatal(err)
		}
		rules = append(rules, s)
	}
	f.Fuzz(func(t *testing.T, a, b, c, d string, more uint16) {
		pad := strings.Repeat("v", int(more)%(2*headgate.MaxKey))
		one := Descriptor{{"a", a + pad}, {"b", b}, {"api_key", b + pad}}
		two := Descriptor{{"a", c + pad}, {"b", d}, {"api_key", d + pad}}
		for i, s := range rules {
			same := true
			for _, p := range s.Rules()[0].Per {
				x, _ := one.Get(p.Entry)
				y, _ := two.Get(p.Entry)
				same = same && x == y
			}
			x, err := s.Match(one, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			y, err := s.Match(two, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(x) == 0 || len(y) == 0 {
				continue // one of them lacks an entry
			}
			if (x[0].Key == y[0].Key) != same {
				t.Errorf("rule %d: %q and %q are counted under %q and %q", i, one, two, x[0].Key, y[0].Key)
			}
			if len(x[0].Key) > headgate.MaxKey {
				t.Errorf("rule %d: the key of %q has %d bytes", i, one, len(x[0].Key))
			}
		}
	})
}

// FuzzEnforced: a key for which a rule may deny at some percentage is among those of
// every larger one.
func FuzzEnforced(f *testing.F) {
	f.Add("api", "k1")
	f.Add("", "\x00")
	f.Fuzz(func(t *testing.T, rule, key string) {
		before := false
		for percent := range 101 {
			is := enforced(rule, key, percent)
			if before && !is || percent == 0 && is || percent == 100 && !is {
				t.Fatalf("%q of %q: enforced at %d%%: %t; at one less: %t", key, rule, percent, is, before)
			}
			before = is
		}
	})
}

// TestAddressesOfSubjects: a client that stands in the table in two spellings stands
// in it twice.
func TestAddressesOfSubjects(t *testing.T) {
	row := func(key string, line int) Subject {
		return Subject{Key: key, Entries: []Entry{{"tier", "pro"}}, Pos: Position{"t.csv", line, 1}}
	}
	_, err := New(nil, SubjectTable(Subjects{By: "ip", Table: []Subject{row("2001:db8::1", 2), row("192.0.2.1", 3), row("2001:DB8:0::1", 4)}}))
	want := `t.csv:4:1: the subject "2001:DB8:0::1" is in the table twice, first at t.csv:2:1; keep one`
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestNamesOfSubjects: what the table adds is told once, and a policy without a table
// adds nothing.
func TestNamesOfSubjects(t *testing.T) {
	s := mustNew(t, nil, SubjectTable(Subjects{
		Table: []Subject{{Key: "k1", Entries: []Entry{{"tier", "pro"}, {"tenant", "t"}}}, {Key: "k2", Entries: []Entry{{"tier", "free"}}}},
		Other: []Entry{{"known", "no"}},
	}))
	if names := strings.Join(s.Subjects().Names(), " "); names != "known tenant tier" {
		t.Errorf("the table adds %q", names)
	}
	if names := mustNew(t, nil).Subjects().Names(); len(names) != 0 {
		t.Errorf("no table adds %q", names)
	}
}
