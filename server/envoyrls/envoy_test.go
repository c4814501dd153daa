package envoyrls

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/server/decide"
)

// The examples of envoyproxy/ratelimit's README, in other words.

func TestValues(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: database
    value: default
    rate_limit: {unit: second, requests_per_unit: 1}
`), Options{})
	s.run(t, "mongo_cps",
		step{ds(d("database=users")), "OK OK:1"},
		step{ds(d("database=default")), "OK OK:0"},
		step{ds(d("database=users")), "OK OK:0"},
		step{ds(d("database=users")), "OVER OVER:0"},
		step{ds(d("database=default")), "OVER OVER:0"},
		step{ds(d("database=others")), "OK OK"},
		step{ds(d("table=users")), "OK OK"},
		step{ds(d()), "OK OK"},
	)
	s.pass(time.Second)
	s.run(t, "mongo_cps", step{ds(d("database=users")), "OK OK:1"})
	if got := s.ask(t, "elsewhere", d("database=users")); got != "OK OK" {
		t.Errorf("another domain: %s", got)
	}
}

func TestNestedAndDepth(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 1}
  - key: to_number
    rate_limit: {unit: day, requests_per_unit: 2}
`), Options{})
	both := func(number string) step {
		return step{ask: ds(d("message_type=marketing", "to_number="+number), d("to_number="+number))}
	}
	wants := []string{"OK OK:0 OK:1", "OVER OVER:0 OK:1", "OK OK:0 OK:1"}
	for i, number := range []string{"2061111111", "2061111111", "2062222222"} {
		if got := s.ask(t, "messaging", both(number).ask...); got != wants[i] {
			t.Errorf("%s: got %q, want %q", number, got, wants[i])
		}
	}
	s.run(t, "messaging",
		step{ds(d("message_type=marketing")), "OK OK"},                                              // no limit of its own
		step{ds(d("to_number=1", "more=x")), "OK OK"},                                               // deeper than the configuration
		step{ds(d("message_type=other", "to_number=1")), "OK OK"},                                   // no way back
		step{ds(d("message_type=marketing", "to_number=")), "OK OK:0"},                              // an empty value is a value
		step{ds(d("message_type=marketing", "to_number=")), "OVER OVER:0"},                          // and has its own counter
		step{ds(d("message_type=marketing", "to_number=2063333333", "more=x")), "OK OK"},            //
		step{ds(d("to_number=9"), d("to_number=9"), d("to_number=9")), "OVER OVER:2 OVER:2 OVER:2"}, // three at once
	)
}

func TestBannedAndUnlimited(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: remote_address
    value: 50.0.0.5
    rate_limit: {unit: minute, requests_per_unit: 0, name: banned}
  - key: ldap
    rate_limit: {unlimited: true}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 0}
`), Options{})
	s.run(t, "edge",
		step{ds(d("remote_address=50.0.0.1")), "OK OK:9"},
		step{ds(d("remote_address=50.0.0.5")), "OVER OVER:0"},
		step{ds(hits(0, d("remote_address=50.0.0.5"))), "OVER OVER:0"},
		step{ds(back(1, d("remote_address=50.0.0.5"))), "OK OK:0"},
		step{ds(d("ldap=x")), "OK OK:all"},
		step{ds(d("quiet=x")), "OK OK:0"},
		// What one denies, none is charged for.
		step{ds(d("remote_address=50.0.0.1"), d("remote_address=50.0.0.5")), "OVER OK:9 OVER:0"},
		step{ds(d("remote_address=50.0.0.1")), "OK OK:8"},
	)
	answer := s.must(t, &pb.RateLimitRequest{Domain: "edge", Descriptors: ds(d("ldap=x"), d("remote_address=50.0.0.5"))})
	// No store is asked for such a limit, so that the window's end is that of the host's clock.
	if got := headers(answer); !regexp.MustCompile(`^Cache-Control: no-store, X-Ratelimit-Limit: 0, X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: ([1-9]|[1-5]\d|60)$`).MatchString(got) {
		t.Errorf("the headers are %q", got)
	}
	if seconds := answer.GetStatuses()[1].GetDurationUntilReset().GetSeconds(); seconds < 1 || seconds > 60 {
		t.Errorf("the reset is after %d seconds", seconds)
	}
	if got, want := metadata(answer), "allowed=false descriptor=1 limit=0 per 1m remaining=0 rule=edge.remote_address_50.0.0.5"; got != want {
		t.Errorf("the metadata are %q, want %q", got, want)
	}
	if limit := answer.GetStatuses()[1].GetCurrentLimit(); limit.GetName() != "banned" || limit.GetUnit() != pb.RateLimitResponse_RateLimit_MINUTE || limit.GetRequestsPerUnit() != 0 {
		t.Errorf("the limit is %v", limit)
	}
}

func TestWildcards(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: example
descriptors:
  - key: path
    value: files/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: file*
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: path
    value: files/special
    rate_limit: {unit: hour, requests_per_unit: 7}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: any
    value: "*"
    share_threshold: true
    descriptors:
      - key: method
        rate_limit: {unit: hour, requests_per_unit: 5}
  - key: x-*
    rate_limit: {unit: hour, requests_per_unit: 4}
`), Options{})
	s.run(t, "example",
		step{ds(d("path=files/a")), "OK OK:1"},
		step{ds(d("path=files/b")), "OK OK:0"}, // shared
		step{ds(d("path=files/c")), "OVER OVER:0"},
		step{ds(d("path=file-a")), "OK OK:2"},
		step{ds(d("path=file-b")), "OK OK:2"}, // not shared
		step{ds(d("path=files/special")), "OK OK:6"},
		step{ds(d("path=other")), "OK OK:8"},
		step{ds(d("any=1", "method=GET")), "OK OK:4"},
		step{ds(d("any=2", "method=GET")), "OK OK:3"},
		step{ds(d("any=2", "method=PUT")), "OK OK:4"},
		step{ds(d("x-one=a")), "OK OK:3"},
		step{ds(d("x-two=a")), "OK OK:3"},
		step{ds(d("x-one=a")), "OK OK:2"},
	)
}

func TestShadowAndQuota(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: example
descriptors:
  - key: user
    value: a
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: user
    value: b
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: user
    value: c
    quota_mode: true
    rate_limit: {unit: second, requests_per_unit: 1}
`), Options{})
	s.run(t, "example",
		step{ds(d("user=a")), "OK OK:0"},
		step{ds(d("user=a")), "OK OK:0"},
		step{ds(d("user=b")), "OK OK:0"},
		step{ds(d("user=b")), "OVER OVER:0"},
		step{ds(d("user=c")), "OK OK:0"},
	)
	answer := s.must(t, &pb.RateLimitRequest{Domain: "example", Descriptors: ds(d("user=a"), d("user=c"))})
	if got, want := line(answer), "OVER OK:0 OVER:0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := metadata(answer), "allowed=false descriptor=1 limit=1 per 1s quotaModeViolations=[1] remaining=0 retry_after_ms=1000 rule=example.user_c shadow_denied=[example.user_a]"; got != want {
		t.Errorf("the metadata are %q, want %q", got, want)
	}
	// Where nothing else binds, headers tell what shadows would have said.
	answer = s.must(t, &pb.RateLimitRequest{Domain: "example", Descriptors: ds(d("user=a"))})
	if got, want := line(answer)+" "+headers(answer), "OK OK:0 X-Ratelimit-Limit: 1, X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSeveralQuotas: a request passes as long as one of its quotas has something left. When
// none has, it is denied until the first of them begins again, and charged nowhere.
func TestSeveralQuotas(t *testing.T) {
	const text = `
domain: example
descriptors:
  - {key: service, value: one, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: service, value: two, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: service, value: never, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
`
	all := ds(d("user=a"), d("service=one"), d("service=two"), d("service=never"))
	s := newStage(t, envoyPolicy(t, text), Options{})
	s.run(t, "example",
		step{all, "OK OK:9 OK:0 OK:1 OVER:0"},
		step{all, "OK OK:8 OVER:0 OK:0 OVER:0"},
		step{all, "OVER OK:8 OVER:0 OVER:0 OVER:0"},
		step{ds(d("user=a")), "OK OK:7"}, // What was denied was not charged.
		step{ds(d("service=never")), "OVER OVER:0"},
		step{ds(hits(0, d("service=one")), d("user=a")), "OVER OVER:0 OK:7"}, // by a peek
		step{ds(d("service=one"), back(1, d("user=a"))), "OVER OVER:0 OK:7"},
	)
	answer := s.must(t, &pb.RateLimitRequest{Domain: "example", Descriptors: all})
	if got, want := metadata(answer), "allowed=false descriptor=1 limit=1 per 1m quotaModeViolations=[1 2 3] remaining=0 retry_after_ms=60000 rule=example.service_one shadow_denied=[example.service_two example.service_never]"; got != want {
		t.Errorf("the metadata are %q, want %q", got, want)
	}
	s.pass(time.Minute)
	s.run(t, "example", step{all, "OK OK:6 OK:0 OVER:0 OVER:0"}, step{all, "OVER OK:6 OVER:0 OVER:0 OVER:0"})
	// Each by itself, what is denied is charged all the same.
	s = newStage(t, envoyPolicy(t, text), Options{Independent: true})
	s.run(t, "example",
		step{all, "OK OK:9 OK:0 OK:1 OVER:0"},
		step{all, "OK OK:8 OVER:0 OK:0 OVER:0"},
		step{all, "OVER OK:7 OVER:0 OVER:0 OVER:0"},
		step{ds(d("user=a")), "OK OK:6"},
	)
}

// TestMetadata: the metadata of limits are told of the descriptors that pass.
func TestMetadata(t *testing.T) {
	policy := envoyPolicy(t, `
domain: example
descriptors:
  - key: service
    value: one
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
    metadata: {name: one, quota: {one: 1.5, tags: [a, 2, true, null, {b: c}]}}
  - key: service
    value: two
    rate_limit: {unit: hour, requests_per_unit: 9}
    metadata: {name: two, quota: {two: 0x, one: later}, flag: false, "null": ~}
  - key: service
    value: three
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: free
    rate_limit: {unlimited: true}
    metadata: {free: yes}
`)
	ask := &pb.RateLimitRequest{Domain: "example", Descriptors: ds(d("service=one"), d("service=two"), d("service=three"), d("free=x"))}
	want := "map[flag:false name:one null:<nil> quota:map[one:1.5 tags:[a 2 true <nil> map[b:c]] two:0x]]"
	var s *stage
	for range 2 { // The configuration's own stay as they are.
		s = newStage(t, policy, Options{})
		if got := fmt.Sprint(s.must(t, ask).GetDynamicMetadata().AsMap()["metadata"]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	want = "map[flag:false name:two null:<nil> quota:map[one:later two:0x]]"
	if got := fmt.Sprint(s.must(t, ask).GetDynamicMetadata().AsMap()["metadata"]); got != want {
		t.Errorf("beyond the quota: got %s, want %s", got, want)
	}
	ask.Descriptors = ask.Descriptors[3:]
	if got, there := s.must(t, ask).GetDynamicMetadata().AsMap()["metadata"]; there {
		t.Errorf("of nothing limited: %v", got)
	}
}

// TestStarsInside: a star anywhere in a value or a key stands for any text.
func TestStarsInside(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: example
descriptors:
  - {key: path, value: /api/*/action, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: path, value: foo*bar*baz, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: path, value: "*/end", rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: h-*-id, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: m-*, value: GET, rate_limit: {unit: hour, requests_per_unit: 6}}
`), Options{})
	s.run(t, "example",
		step{ds(d("path=/api/a/action")), "OK OK:1"},
		step{ds(d("path=/api/a/b/action")), "OK OK:1"},
		step{ds(d("path=/api//action")), "OK OK:1"},
		step{ds(d("path=/api/action")), "OK OK"}, // The two parts do not overlap.
		step{ds(d("path=/api/a/action/")), "OK OK"},
		step{ds(d("path=foobarbaz")), "OK OK:2"},
		step{ds(d("path=foo1bar2barbazbaz")), "OK OK:1"},
		step{ds(d("path=foobaz")), "OK OK"},
		step{ds(d("path=x/end")), "OK OK:3"},
		step{ds(d("h-user-id=x")), "OK OK:4"},
		step{ds(d("h-user=x")), "OK OK"},
		step{ds(d("m-a=GET")), "OK OK:5"},
		step{ds(d("m-b=GET")), "OK OK:5"},
		step{ds(d("m-b=PUT")), "OK OK"},
	)
}

func TestReplaces(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: example
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - key: user
        value: bkthomps
        rate_limit: {name: specific_limit, requests_per_unit: 1, unit: second}
  - key: key_2
    value: value_2
    descriptors:
      - key: user
        value: bkthomps
        rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 3, unit: second}
  - key: partner
    rate_limit: {unlimited: true, replaces: [{name: specific_limit}]}
`), Options{})
	one, two := d("key_1=value_1", "user=bkthomps"), d("key_2=value_2", "user=bkthomps")
	s.run(t, "example",
		step{ds(one, two), "OK OK OK:2"},
		step{ds(two, one), "OK OK:1 OK"},
		step{ds(one), "OK OK:0"},
		step{ds(one), "OVER OVER:0"},
		step{ds(one, d("partner=x")), "OK OK OK:all"},
	)
}

// chain has limits that replace one another: a limit that is replaced still
// replaces others, and one of the next does not come back, in whatever order the
// descriptors stand. What is unlimited stays so.
const chain = `
domain: chain
descriptors:
  - {key: a, rate_limit: {name: na, replaces: [{name: nb}], requests_per_unit: 9, unit: hour}}
  - {key: b, rate_limit: {name: nb, replaces: [{name: nc}], requests_per_unit: 9, unit: hour}}
  - {key: c, rate_limit: {name: nc, requests_per_unit: 9, unit: hour}}
  - {key: x, rate_limit: {name: nx, replaces: [{name: ny}, {name: free}], requests_per_unit: 9, unit: hour}}
  - {key: y, rate_limit: {name: ny, replaces: [{name: nx}], requests_per_unit: 9, unit: hour}}
`

// free is one more descriptor of the chain, for which the rules have a list.
const free = "  - {key: free, rate_limit: {name: free, unlimited: true}}\n"

func TestReplacesInAChain(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "chain.yaml"), []byte(chain+free), 0o600); err != nil {
		t.Fatal(err)
	}
	converted, lost, err := config.ConvertEnvoy(dir)
	if err != nil || lost != nil {
		t.Fatalf("lost %v, %v", lost, err)
	}
	for name, policy := range map[string]decide.Policy{"as it is": envoyPolicy(t, chain+free), "as rules": ownPolicy(t, string(converted))} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, policy, Options{})
			a, b, c, x, y := d("a=1"), d("b=1"), d("c=1"), d("x=1"), d("y=1")
			s.run(t, "chain",
				step{ds(a, b, c), "OK OK:8 OK OK"},
				step{ds(c, b, a), "OK OK OK OK:7"},
				step{ds(b, a, c), "OK OK OK:6 OK"},
				step{ds(a, c), "OK OK:5 OK:8"},
				step{ds(c), "OK OK:7"},
				step{ds(x, y), "OK OK OK"},
				step{ds(d("free=1"), x), "OK OK:all OK:8"},
			)
		})
	}
}

func TestUnits(t *testing.T) {
	policy := envoyPolicy(t, `
domain: units
descriptors:
  - {key: a, rate_limit: {unit: SECOND, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: Minute, requests_per_unit: 1}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: d, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: e, rate_limit: {unit: week, requests_per_unit: 1}}
  - {key: f, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: g, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: h, rate_limit: {unit: minute, unit_multiplier: 10, requests_per_unit: 4000000000}}
`)
	s := newStage(t, policy, Options{})
	// The clock stands at a full hour, from where the windows end at multiples of
	// their length since 1970.
	const now = atFullHour / 1_000_000
	for key, want := range map[string]struct {
		unit   pb.RateLimitResponse_RateLimit_Unit
		length int64
	}{
		"a": {pb.RateLimitResponse_RateLimit_SECOND, 1},
		"b": {pb.RateLimitResponse_RateLimit_MINUTE, 60},
		"c": {pb.RateLimitResponse_RateLimit_HOUR, 3600},
		"d": {pb.RateLimitResponse_RateLimit_DAY, 86400},
		"e": {pb.RateLimitResponse_RateLimit_WEEK, 7 * 86400},
		"f": {pb.RateLimitResponse_RateLimit_MONTH, 30 * 86400},
		"g": {pb.RateLimitResponse_RateLimit_YEAR, 365 * 86400},
		"h": {pb.RateLimitResponse_RateLimit_MINUTE, 600},
	} {
		status := s.must(t, &pb.RateLimitRequest{Domain: "units", Descriptors: ds(d(key + "=x"))}).GetStatuses()[0]
		if got := status.GetCurrentLimit().GetUnit(); got != want.unit {
			t.Errorf("%s: the unit is %v, want %v", key, got, want.unit)
		}
		if got := status.GetDurationUntilReset().GetSeconds(); got != want.length-now%want.length {
			t.Errorf("%s: the window ends in %d s, want %d", key, got, want.length-now%want.length)
		}
		if n := status.GetCurrentLimit().GetUnitMultiplier().GetValue(); (n == 10) != (key == "h") {
			t.Errorf("%s: the multiplier is %d", key, n)
		}
		if key == "h" && (status.GetCurrentLimit().GetRequestsPerUnit() != 4_000_000_000 || status.GetLimitRemaining() != 3_999_999_999) {
			t.Errorf("a limit above 31 bits: %v", status)
		}
	}
}
