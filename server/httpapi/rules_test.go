package httpapi

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestRules shows a policy that has all that there is, and no secret.
func TestRules(t *testing.T) {
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	limits := func(count int64) *headgate.Rule { return headgate.MustRule("api", headgate.PerMinute(count)) }
	pos := policy.Position{File: "a.yaml", Line: 3, Column: 5}
	f := newFake(t)
	var err error
	f.set, err = policy.New([]policy.Rule{
		{
			Name:  "api",
			Match: []policy.Condition{policy.Equal("api_key", "geheim-1", "geheim-2"), policy.Network("ip", netip.MustParsePrefix("192.0.2.0/24"))},
			Per:   []policy.Part{{Entry: "ip", Bits6: 64}},
			Tariff: &policy.Tariff{
				Entry: "token", Tiers: []policy.Tier{{Value: "geheim-3", Limits: limits(60)}}, Other: limits(30),
			},
			Overrides: []policy.Override{{Match: []policy.Condition{policy.Equal("token", "geheim-4")}, Limits: limits(90), Until: until, Pos: pos}},
			Costs:     &policy.Costs{Entry: "token", Values: map[string]int64{"geheim-5": 7}, Other: 2},
			Soft:      80, Enforce: 10, Hints: headgate.Hints{OnError: headgate.OnErrorLocal, Consistency: headgate.Leased, Scope: headgate.Global, DenyCache: headgate.DenyCacheOn},
			GiveBackOn:  policy.Statuses{{First: 304, Last: 304}, {First: 500, Last: 599}},
			Reservation: policy.Reservation{For: time.Second, GiveBack: true},
			Replaces:    []string{"bytes"},
			Ignore:      []policy.Ignore{{Code: "HG013", Reason: "a test"}},
			Pos:         pos,
		},
		{
			Limits: headgate.MustRule("bytes", headgate.PerMinute(60)), Mode: policy.ModeShadow,
			Costs: &policy.Costs{Entry: "bytes", Per: 1024, Max: 10}, ChargeOn: policy.Statuses{{First: 401, Last: 401}},
		},
	}, policy.Denied(policy.ListEntry{Name: "out", Match: []policy.Condition{policy.Hashed("token", strings.Repeat("A", 22))}, Until: until, Replaces: []string{"bytes"}, Pos: pos}),
		policy.Allowed(policy.ListEntry{Name: "in", Match: []policy.Condition{policy.Absent("user")}}),
		policy.SubjectTable(policy.Subjects{Table: []policy.Subject{{Key: "geheim-6", Entries: []policy.Entry{{Name: "tier", Value: "pro"}}}}, Other: []policy.Entry{{Name: "tier", Value: "free"}}, File: "clients.csv"}),
		policy.Ignored(policy.Ignore{Code: "HG012", Reason: "another test"}))
	if err != nil {
		t.Fatal(err)
	}
	w := get(New(over(f), Options{}), "/v1/rules")
	hash := func(secret string) string { return "hash:" + f.set.Hash("token", secret) }
	condition := func(entry string, not string, values, networks, hashes string) string {
		return `{"entry":"` + entry + `","not":` + not + `,"values":` + values + `,"prefixes":0,"networks":` + networks + `,"hashes":` + hashes + `}`
	}
	per := func(count string) string {
		return `[{"limit":"` + count + ` per 1m","algorithm":"token_bucket","capacity":` + count + `,"period_ms":60000}]`
	}
	const at = `"pos":{"file":"a.yaml","line":3,"column":5}`
	want := `{"version":1,"hash":"5ec2e7","rules":[` +
		`{"name":"api","direct":false,"match":[` + condition("api_key", "false", "2", "0", "0") + `,` + condition("ip", "false", "0", "1", "0") + `],"per":["ip/64"],"cost":1,` +
		`"costs":{"entry":"token","values":{"` + hash("geheim-5") + `":7},"other":2},"limits":` + per("30") + `,` +
		`"tariff":{"entry":"token","tiers":[{"tier":"` + hash("geheim-3") + `","limits":` + per("60") + `},{"tier":"*","limits":` + per("30") + `}]},` +
		`"overrides":[{"match":[` + condition("token", "false", "1", "0", "0") + `],"limits":` + per("90") + `,"until":"2027-01-01T00:00:00Z",` + at + `}],` +
		`"soft":80,"mode":"enforce","enforce":10,"give_back_on":["304","5xx"],"reservation":{"for_ms":1000,"give_back":true},"on_store_error":"local","consistency":"leased","scope":"global","deny_cache":"on","replaces":["bytes"],"ignore":[{"code":"HG013","reason":"a test"}],` + at + `},` +
		`{"name":"bytes","direct":false,"match":[],"per":[],"cost":1,"costs":{"entry":"bytes","per":1024,"max":10},"limits":` + per("60") + `,"mode":"shadow","enforce":0,"charge_on":["401"]}],` +
		`"allow":[{"name":"in","match":[` + condition("user", "true", "0", "0", "0") + `]}],` +
		`"deny":[{"name":"out","match":[` + condition("token", "false", "0", "0", "1") + `],"until":"2027-01-01T00:00:00Z","replaces":["bytes"],` + at + `}],` +
		`"subjects":{"by":"api_key","rows":1,"other":true,"file":"clients.csv"},"ignore":[{"code":"HG012","reason":"another test"}]}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if wrong := newDocument(t).response("GET", "/v1/rules", w); wrong != "" {
		t.Error(wrong)
	}
}

// TestRulesShowAll fails when a policy has something that is not shown. Whoever adds
// a field adds it to /v1/rules, and then here.
func TestRulesShowAll(t *testing.T) {
	for kind, shown := range map[reflect.Type][]string{
		// Written is places in the file, for messages of lint; an answer has that of the rule.
		reflect.TypeFor[policy.Rule](): {
			"Written", "Name", "Match", "Per", "Limits", "Tariff", "InProgress", "Overrides", "Counts", "Cost", "Costs", "Soft", "Mode", "Enforce", "GiveBackOn", "ChargeOn", "Reservation", "OnError", "Consistency", "Scope", "DenyCache", "Replaces", "Ignore", "Direct", "Pos",
		},
		reflect.TypeFor[policy.Override]():    {"Match", "Limits", "InProgress", "Until", "Pos"},
		reflect.TypeFor[policy.InProgress]():  {"Limit", "Entry", "Values", "Wait", "Queue", "Shared", "TTL"},
		reflect.TypeFor[policy.Tariff]():      {"Entry", "Tiers", "Other"},
		reflect.TypeFor[policy.Tier]():        {"Value", "Limits"},
		reflect.TypeFor[policy.Costs]():       {"Entry", "Values", "Other", "Per", "Max"},
		reflect.TypeFor[policy.Condition]():   {"Entry", "Equals", "Prefixes", "Networks", "Hashes", "Not"},
		reflect.TypeFor[policy.ListEntry]():   {"Name", "Match", "Until", "Replaces", "Pos"},
		reflect.TypeFor[policy.Reservation](): {"For", "GiveBack", "Typical"},
		// The rows are clients.
		reflect.TypeFor[policy.Subjects](): {"By", "Table", "Other", "OtherPos", "File"},
	} {
		var has []string
		for _, field := range reflect.VisibleFields(kind) {
			if !field.Anonymous {
				has = append(has, field.Name)
			}
		}
		slices.Sort(has)
		slices.Sort(shown)
		if !slices.Equal(has, shown) {
			t.Errorf("%v has %v, shown are %v", kind, has, shown)
		}
	}
}
