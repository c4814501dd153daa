package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestMistakes: everything that is wrong with what a rule or a set may have
// besides, at once.
func TestMistakes(t *testing.T) {
	limits := per("a", 1)
	network := netip.MustParsePrefix
	long := strings.Repeat("x", MaxValue+1)
	_, err := New([]Rule{
		{Limits: limits, Tariff: &Tariff{Entry: "a b", Tiers: []Tier{{"", nil}, {"x", per("b", 1)}, {"x", per("a", 1)}}, Other: per("c", 1)}},
		{Name: "b", Tariff: &Tariff{Entry: "tier"}},
		{Limits: per("c", 1), Cost: 2, Costs: &Costs{Entry: "", Values: map[string]int64{"": -1}, Per: 5, Max: -1}},
		{Limits: per("d", 1), Costs: &Costs{Entry: "x", Max: 5}, Soft: 100, Enforce: 101, Mode: 9},
		{Limits: per("e", 1), Soft: -1, Enforce: 50, Mode: ModeShadow, Ignore: []Ignore{{"", "x"}, {"HG004", " "}}},
		{Limits: per("f", 1), Overrides: []Override{
			{},
			{Match: []Condition{Present("user"), Equal("user", "")}, Limits: per("g", 1)},
		}},
		{Limits: per("g", 1), Direct: true, Overrides: []Override{{Match: []Condition{Present("user")}, Limits: per("g", 1)}}},
		{Limits: per("h", 1), Match: []Condition{
			Network("ip", network("10.0.0.1/8")),
			Network("ip", netip.Prefix{}),
			Network("ip", network("::ffff:10.0.0.0/104")),
			Equal("ip", "10.0.0/8"),
			Hashed("api_key", "short"),
			{Entry: "e", Networks: make([]netip.Prefix, MaxValues), Hashes: []string{"x"}},
		}},
	},
		Denied(ListEntry{Match: []Condition{Present("a b")}}, ListEntry{Name: "x"}),
		Allowed(ListEntry{Name: "x", Match: []Condition{Present("user")}, Pos: Position{"p.yml", 3, 5}}, ListEntry{Name: long, Match: []Condition{Present("user")}}),
		Ignored(Ignore{Code: "HG004"}),
		SubjectTable(Subjects{
			Table: []Subject{
				{Key: "k1", Entries: []Entry{{"tier", "a"}}, Pos: Position{"s.yml", 1, 1}},
				{Key: "k1", Entries: []Entry{{"tier", "a"}, {"tier", "b"}}},
				{Key: "", Entries: []Entry{{"a b", long}}},
				{Key: HashMark + "x"},
				{Key: "k2", Entries: make([]Entry, MaxEntries+1)},
			},
			Other: []Entry{{"api_key", "k1"}},
		}))
	want := `headgate: policy: the reason for ignoring HG004 is missing; say why it does not matter here
entry "": the name has 0 bytes, must have 1 to 128
entry "a b": the name has ' ' at byte 1; it may have letters, digits and _ - . : only
the entry "x" has no conditions and would answer every request; say which
p.yml:3:5: the name "x" is taken by another entry of the allow or deny list; give each its own
entry "` + strings.Repeat("x", 64) + `"...: the name has 8193 bytes, must have 1 to 128
entry "api_key" is what the table is looked up by, and cannot be set in it
the subject (a secret) is in the table twice, first at s.yml:1:1; keep one
entry "tier" is set twice; keep one
the subject (a secret) has 0 bytes, must have 1 to 8192
entry "a b": the name has ' ' at byte 1; it may have letters, digits and _ - . : only
entry "a b": the value has 8193 bytes, must have 1 to 8192
the subject "hash:x": "x" is no hash of a secret; it has 22 letters, digits, - and _
the subject "hash:x" has no entries; say what is known of it, such as { tier: pro }
there are 33 entries, must be at most 32
entry "": the name has 0 bytes, must have 1 to 64`
	tail := `rule "a": entry "a b": the name has ' ' at byte 1; it may have letters, digits and _ - . : only
rule "a": the name is "a" but the other limits were made for "c"; counters can be kept under one name only
rule "a": the tier "" has 0 bytes, must have 1 to 8192
rule "a": the tier "" has no limits; make them with headgate.NewRule
rule "a": the name is "a" but the limits of the tier "x" were made for "b"; counters can be kept under one name only
rule "a": the tier "x" is set twice; keep one
rule "a": there are both limits and a tariff; write the limits as the tariff's other ones
rule "b": the tariff has 0 tiers, must have 1 to 1000
rule "c": entry "": the name has 0 bytes, must have 1 to 64
rule "c": the costs by "" are both a table and a measure; keep one
rule "c": the value "" has 0 bytes, must have 1 to 8192
rule "c": the cost of "" is -1, must be 0 to 9007199254740991
rule "c": the largest cost is -1, must be at most 9007199254740991 and not negative
rule "c": there are both a cost, 2, and costs by ""; keep one
rule "d": the costs by "x" have neither values nor a measure
rule "d": the costs by "x" are both a table and a measure; keep one
rule "d": mode 9 is unknown
rule "d": soft is 100%, must be 1% to 99%
rule "d": enforce is 101%, must be 1% to 100%; for none write mode: shadow
rule "e": soft is -1%, must be 1% to 99%
rule "e": the rule is in mode shadow and cannot be enforced for 50% of its keys; drop one of the two
rule "e": the code of the warning to ignore is missing; it is one such as HG004
rule "e": the reason for ignoring HG004 is missing; say why it does not matter here
rule "f": the override has no conditions and would replace the rule's limits for all; write them as the rule's
rule "f": the override has no limits; make them with headgate.NewRule
rule "f": entry "user": the value "" has 0 bytes, must have 1 to 8192; for a missing entry ask that it be absent
rule "f": the name is "f" but the limits of the override were made for "g"; counters can be kept under one name only
rule "g": there are limits or costs by an entry, but a direct rule is reached by name and key only
rule "h": entry "ip": the network 10.0.0.1/8 has bits set beyond its length; write 10.0.0.0/8
rule "h": entry "ip": invalid Prefix is no network
rule "h": entry "ip": the network ::ffff:10.0.0.0/104 is IPv4 inside IPv6, which addresses are never compared as; write it as IPv4
rule "h": entry "ip": "10.0.0/8" is no network; write an address and a length, such as 192.0.2.0/24
rule "h": entry "api_key": "short" is no hash of a secret; it has 22 letters, digits, - and _
rule "h": entry "e": there are 10001 values, must be at most 10000`
	if err == nil {
		t.Fatal("there are no mistakes")
	}
	got := err.Error()
	// Between the two are as many lines as the subject with too many entries has.
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, tail) {
		t.Errorf("got\n%s\nwant\n%s\n...\n%s", got, want, tail)
	}
}

func TestBoundsOfLists(t *testing.T) {
	tiers, costs := make([]Tier, MaxTiers+1), map[string]int64{}
	for i := range MaxCosts + 1 {
		costs[strings.Repeat("x", 1+i%100)+string(rune('0'+i))] = 1
	}
	for _, c := range []struct {
		rules []Rule
		opts  []Option
		want  string
	}{
		{[]Rule{{Name: "a", Tariff: &Tariff{Entry: "t", Tiers: tiers}}}, nil, "the tariff has 1001 tiers, must have 1 to 1000"},
		{[]Rule{{Limits: per("a", 1), Overrides: make([]Override, MaxOverrides+1)}}, nil, "there are 10001 overrides, must be at most 10000"},
		{[]Rule{{Limits: per("a", 1), Costs: &Costs{Entry: "x", Values: costs}}}, nil, "there are 10001 costs, must be at most 10000"},
		{nil, []Option{Denied(make([]ListEntry, MaxListed+1)...)}, "the deny list has 10001 entries, must have at most 10000"},
		{nil, []Option{SubjectTable(Subjects{Table: make([]Subject, MaxSubjects+1)})}, "there are 1000001 subjects, must be at most 1000000"},
		{nil, []Option{SubjectTable(Subjects{By: "a b"})}, `entry "a b": the name has ' ' at byte 1`},
		{[]Rule{{Limits: headgate.MustRule("a", headgate.PerSecond(1)), Match: make([]Condition, MaxConditions+1)}}, nil, "there are 33 conditions, must be at most 32"},
	} {
		if _, err := New(c.rules, c.opts...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %.200v, want %q", err, c.want)
		}
	}
}
