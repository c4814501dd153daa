package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

var newKey, oldKey = []byte("the new key of 24 bytes."), []byte("the old key of 24 bytes.")

// TestOldHashKey: while the key is being changed, a secret is counted under both
// keys, and found by hashes of either.
func TestOldHashKey(t *testing.T) {
	for name, tt := range map[string]struct{ before, after []Option }{
		"from a key to a key":    {[]Option{HashKey(oldKey)}, []Option{HashKey(newKey)}},
		"from no key to a key":   {nil, []Option{HashKey(newKey)}},
		"from a key to no key":   {[]Option{HashKey(oldKey)}, nil},
		"from another new key":   {[]Option{HashKey(newKey)}, []Option{HashKey(oldKey)}},
		"the keys are of a kind": {[]Option{HashKey(append(oldKey, 'x'))}, []Option{HashKey(oldKey)}},
	} {
		rules := func(s *Set) []Rule {
			client := rule("client", nil, "api_key")
			pair := rule("pair", nil, "ip", "api_key")
			pair.Enforce = 50
			listed := rule("listed", []Condition{Hashed("api_key", s.Hash("api_key", "k1"), s.Hash("api_key", "k2"))})
			return []Rule{client, pair, listed, rule("plain", nil, "ip")}
		}
		none := mustNew(t, nil, tt.before...)
		before := mustNew(t, rules(none), tt.before...)
		table := SubjectTable(Subjects{Table: []Subject{{Key: HashMark + none.Hash("api_key", "k1"), Entries: []Entry{{"tier", "gold"}}}}})
		var key []byte
		o := options{}
		for _, option := range tt.before {
			option(&o)
		}
		key = o.hashKey
		during := mustNew(t, rules(none), append(slices.Clone(tt.after), OldHashKey(key), table)...)
		after := mustNew(t, rules(mustNew(t, nil, tt.after...)), tt.after...)

		d := Descriptor{{"api_key", "k1"}, {"ip", "192.0.2.1"}}
		old, both, fresh := checksOf(t, before, d), checksOf(t, during, d), checksOf(t, after, d)
		// Each counter that one of the others uses is used meanwhile, and no other.
		all := slices.Concat(fresh, old)
		slices.Sort(all)
		slices.Sort(both)
		if all = slices.Compact(all); !slices.Equal(all, both) || len(old) != 4 || len(both) != 6 {
			t.Errorf("%s: %v, %v in between, and then %v", name, old, both, fresh)
		}
		if got, _ := during.known(d).Get("tier"); got != "gold" {
			t.Errorf("%s: the tier is %q", name, got)
		}
		for i, key := range []string{"k1", `192.0.2.1|k1`} {
			rule := []string{"client", "pair"}[i]
			checks, err := during.AppendCheck([]headgate.Check{{Key: "x"}}, rule, key, 1)
			if err != nil || len(checks) != 3 || !slices.Contains(both, text(&checks[1])) || !slices.Contains(both, text(&checks[2])) {
				t.Errorf("%s: by name %v, %v", name, checks, err)
			}
		}
		if checks, err := during.AppendCheck(nil, "plain", "192.0.2.1", 1); err != nil || len(checks) != 1 {
			t.Errorf("%s: %v, %v", name, checks, err)
		}
		if checks, err := after.AppendCheck(nil, "client", "k1", 1); err != nil || len(checks) != 1 {
			t.Errorf("%s: %v, %v", name, checks, err)
		}
		if checks, err := during.AppendCheck(nil, "none", "", 1); !errors.Is(err, ErrUnknownRule) || len(checks) != 0 {
			t.Errorf("%s: %v, %v", name, checks, err)
		}
		inspected := 0
		for _, b := range during.Inspect(d, 1, nil) {
			inspected += len(b.Checks)
		}
		if inspected != 6 {
			t.Errorf("%s: Inspect finds %d checks, want 6", name, inspected)
		}
	}
}

// checksOf are the request's checks, as text.
func checksOf(t *testing.T, s *Set, d Descriptor) []string {
	t.Helper()
	out, err := s.Decide(d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range out.Checks {
		all = append(all, text(&out.Checks[i]))
	}
	return all
}

func text(c *headgate.Check) string {
	mark := ""
	if c.Shadow {
		mark = " shadow"
	}
	return c.Rule.Name() + " " + c.Key + mark
}

// TestOldHashKeyBound: a request has no more checks than a store takes.
func TestOldHashKeyBound(t *testing.T) {
	var rules []Rule
	for i := range headgate.MaxChecks/2 + 1 {
		rules = append(rules, rule(string(rune('A'+i)), nil, "api_key"))
	}
	d := Descriptor{{"api_key", "k1"}}
	s := mustNew(t, rules[1:], HashKey(newKey), OldHashKey(nil))
	out, err := s.Decide(d, 1, nil)
	if err != nil || len(out.Checks) != headgate.MaxChecks {
		t.Errorf("%d checks, %v", len(out.Checks), err)
	}
	s = mustNew(t, rules, HashKey(newKey), OldHashKey(nil))
	if out, err = s.Decide(d, 1, out.Checks[:1]); !errors.Is(err, headgate.ErrInvalid) || len(out.Checks) != 1 {
		t.Errorf("%d checks, %v", len(out.Checks), err)
	}
}

func TestOldHashKeyMistakes(t *testing.T) {
	for want, opts := range map[string][]Option{
		"the old hash key has 5 bytes, must have 16 to 1024, or none": {HashKey(newKey), OldHashKey([]byte("short"))},
		"the old hash key is the hash key":                            {HashKey(newKey), OldHashKey(newKey)},
		"the old hash key is the hash key; leave it out, or set":      {OldHashKey(nil)},
	} {
		if _, err := New(nil, opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestTier: which tier a request is counted as.
func TestTier(t *testing.T) {
	api := rule("api", nil, "user")
	api.Limits = nil
	api.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"free", per("api", 60)}}}
	keyed := rule("keyed", nil, "user")
	keyed.Limits = nil
	keyed.Tariff = &Tariff{Entry: "token", Tiers: []Tier{{"t1", per("keyed", 60)}}}
	s := mustNew(t, []Rule{api, keyed, rule("plain", nil)}, SubjectTable(Subjects{By: "user", Table: []Subject{{Key: "ada", Entries: []Entry{{"tier", "free"}}}}}))
	for _, tt := range []struct {
		rule string
		d    Descriptor
		want string
	}{
		{"api", Descriptor{{"user", "ada"}, {"tier", "pro"}}, "free"},
		{"api", Descriptor{{"tier", "free"}}, "free"},
		{"api", Descriptor{{"tier", "pro"}}, "*"},
		{"api", nil, "*"},
		{"plain", Descriptor{{"tier", "free"}}, ""},
		{"none", Descriptor{{"tier", "free"}}, ""},
		{"keyed", Descriptor{{"token", "t1"}}, s.Hash("token", "t1")},
	} {
		if got := s.Tier(tt.rule, tt.d); got != tt.want {
			t.Errorf("tier of %s for %v is %q, want %q", tt.rule, tt.d, got, tt.want)
		}
	}
	if !s.Secret("token") || s.Secret("user") {
		t.Error("the wrong entries are secret")
	}
}

// TestUnkeyedHashes: hashes that were made without a key are found, and nothing is
// counted under them.
func TestUnkeyedHashes(t *testing.T) {
	plain := mustNew(t, nil)
	rules := []Rule{rule("client", nil, "api_key"), rule("listed", []Condition{Hashed("api_key", plain.Hash("api_key", "k1"))})}
	d := Descriptor{{"api_key", "k1"}}
	keyed := mustNew(t, rules[:1], HashKey(newKey))
	for _, opts := range [][]Option{
		{HashKey(newKey), UnkeyedHashes()},
		{HashKey(newKey), OldHashKey(oldKey), UnkeyedHashes()},
	} {
		got := checksOf(t, mustNew(t, rules, opts...), d)
		if want := append(checksOf(t, keyed, d), "listed "); !slices.Equal(got[:1], want[:1]) || got[len(got)-1] != "listed " || len(got) != len(opts) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
