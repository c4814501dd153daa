package envoyrls

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/server/decide"
)

const tenAndFive = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 5}}
`

func TestHitsAddend(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	request := func(n uint32, all ...*ratelimit.RateLimitDescriptor) string {
		return line(s.must(t, &pb.RateLimitRequest{Domain: "d", HitsAddend: n, Descriptors: all}))
	}
	for i, tt := range []struct{ got, want string }{
		{request(3, d("a=1")), "OK OK:7"},
		{request(3, hits(2, d("a=1"))), "OK OK:5"},
		{request(0, d("a=1")), "OK OK:4"},
		// Peeks look, and charge nothing.
		{request(3, hits(0, d("a=1"))), "OK OK:4"},
		{request(3, hits(0, d("a=1"))), "OK OK:4"},
		// A cost that does not fit is not charged in part.
		{request(5, d("a=1")), "OVER OVER:4"},
		{request(4, d("a=1")), "OK OK:0"},
		{request(4, hits(0, d("a=1"))), "OVER OVER:0"},
		// A peek that denies keeps the others from being charged.
		{request(1, hits(0, d("a=1")), d("b=1")), "OVER OVER:0 OK:5"},
		{request(1, d("b=1")), "OK OK:4"},
		// The same counter twice is charged for both.
		{request(2, d("b=1"), d("b=1")), "OK OK:0 OK:0"},
		{request(1, d("b=1")), "OVER OVER:0"},
		// More than the limit ever admits.
		{request(0, hits(6, d("b=2"))), "OVER OVER:5"},
		{request(0, hits(1_000_000_000, d("b=2"))), "OVER OVER:5"},
	} {
		if tt.got != tt.want {
			t.Errorf("request %d: got %q, want %q", i+1, tt.got, tt.want)
		}
	}
}

// TestReports: with apply_on_stream_done, Envoy peeks at a budget when a request comes, and reports
// what was used when the response has been sent. A report that does not fit is refused as every
// request is, and somebody is told.
func TestReports(t *testing.T) {
	const nested = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 5}}
`
	for name, policy := range map[string]decide.Policy{
		"of envoyproxy/ratelimit": envoyPolicy(t, nested),
		"own": ownPolicy(t, `
rules:
  - {name: a, match: {descriptor: a}, per: [a], algorithm: fixed_window, limits: [10 per 1m]}
  - {name: b, match: {descriptor: b}, per: [b], algorithm: fixed_window, limits: [5 per 1m]}
`),
	} {
		var told atomic.Int64
		s := newStage(t, policy, Options{RefusedReport: func(string) { told.Add(1) }})
		for i, tt := range []struct {
			got  string
			told int64
			want string
		}{
			{s.ask(t, "d", hits(0, d("a=1")), d("b=1")), told.Swap(0), "OK OK:10 OK:4"},
			{s.ask(t, "d", hits(7, d("a=1"))), told.Swap(0), "OK OK:3"},
			{s.ask(t, "d", hits(7, d("a=1"))), told.Swap(0) - 1, "OVER OVER:3"},
			// Nobody peeks at the other limit.
			{s.ask(t, "d", hits(6, d("b=1"))), told.Swap(0), "OVER OVER:4"},
			{s.ask(t, "d", hits(2, d("a=2")), hits(6, d("b=1"))), told.Swap(0), "OVER OK:10 OVER:4"},
			// A cost that the request names as a whole is none that was used.
			{line(s.must(t, &pb.RateLimitRequest{Domain: "d", HitsAddend: 11, Descriptors: ds(d("a=4"))})), told.Swap(0), "OVER OVER:10"},
			{s.ask(t, "d", hits(0, d("b=1"))), told.Swap(0), "OK OK:4"},
			// Whoever peeks changes nothing for others: all or none is charged.
			{s.ask(t, "d", hits(2, d("a=5")), hits(6, d("b=1"))), told.Swap(0) - 1, "OVER OK:10 OVER:4"},
			// A refund among them is no report.
			{s.ask(t, "d", back(2, d("a=5")), hits(6, d("b=2"))), told.Swap(0), "OVER OK:10 OVER:5"},
		} {
			if tt.got != tt.want || tt.told != 0 {
				t.Errorf("%s, request %d: got %q, want %q; told %d times more than expected", name, i+1, tt.got, tt.want, tt.told)
			}
		}
	}
}

// TestHitsTimesTheCostOfARule: so is what they come to under a rule, for as many checks
// as there are.
func TestHitsTimesTheCostOfARule(t *testing.T) {
	const costly = `
rules:
  - {name: upload, match: {path: /up}, per: [user], cost: 1000, algorithm: fixed_window, limits: [999999999 per 1h]}
  - {name: seen, match: {path: /up}, cost: 1000, mode: shadow, algorithm: fixed_window, per: all, limits: [999999999 per 1h]}
limits:
  - {name: job, config: [{limit: 10, period: 60}]}
`
	for independent, want := range map[bool]string{false: "OVER OVER:999998999", true: "OVER OVER:0"} {
		s := newStage(t, ownPolicy(t, costly), Options{Independent: independent})
		s.run(t, "d", step{ds(d("path=/up", "user=a")), "OK OK:999998999"})
		for _, n := range []uint64{1_000_001, 1_000_000_000, math.MaxUint64} {
			if got := s.ask(t, "d", hits(n, d("path=/up", "user=a"))); got != want {
				t.Errorf("%d hits: got %q, want %q", n, got, want)
			}
		}
	}
	s := newStage(t, ownPolicy(t, costly), Options{})
	s.run(t, "d",
		step{ds(hits(9, d("headgate.rule=job", "job=1"))), "OK OK:1"},
		step{ds(hits(9, d("headgate.rule=job", "job=1")), hits(math.MaxUint64, d("headgate.rule=job", "job=1"))), "OVER OVER:1 OVER:1"},
		step{ds(hits(900_000, d("path=/up", "user=a"))), "OK OK:99999999"},
		step{ds(back(math.MaxUint64, d("path=/up", "user=a"))), "OK OK:999999999"},
	)
}

// TestCostsThatCannotBeMeasured: a client that writes nonsense where a number is to be
// costs the most, and gets no error, with which Envoy would let it pass all limits.
func TestCostsThatCannotBeMeasured(t *testing.T) {
	s := newStage(t, ownPolicy(t, `
rules:
  - {name: all, match: {path: /up}, algorithm: fixed_window, per: all, limits: [1000 per 1h], cost: {entry: bytes, per: 1024}}
  - {name: seen, match: {path: /seen}, mode: shadow, algorithm: fixed_window, per: all, limits: [10 per 1h], cost: {entry: bytes, per: 1024}}
  - {name: most, match: {path: /most}, algorithm: fixed_window, per: all, limits: [10 per 1h], cost: {entry: bytes, per: 1024, max: 4}}
`), Options{})
	for _, bytes := range []string{"bytes=x", "bytes=-1", "bytes= 1", "bytes=1e3", "bytes=0x10"} {
		s.run(t, "d",
			step{ds(d("path=/up", bytes)), "OVER OVER:1000"},
			step{ds(d("path=/seen", bytes)), "OK OK:10"},
			step{ds(hits(2, d("path=/most", bytes))), "OK OK:2"},
			step{ds(back(2, d("path=/most", bytes))), "OK OK:10"},
		)
	}
	s.run(t, "d", step{ds(d("path=/up", "bytes=2048")), "OK OK:998"}, step{ds(d("path=/up")), "OK OK:997"})
}

// TestHitsBeyondEveryLimit: Envoy takes hits from what clients send and servers answer.
// More of them than any limit has are one more way to be over it.
func TestHitsBeyondEveryLimit(t *testing.T) {
	most := fmt.Sprintf(`
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: %d}}
`, uint32(math.MaxUint32))
	for _, hits := range []*pb.RateLimitRequest{
		{Domain: "d", HitsAddend: math.MaxUint32, Descriptors: ds(d("a=1"))},
		{Domain: "d", Descriptors: ds(hits(math.MaxInt64+1, d("a=1")))},
		{Domain: "d", HitsAddend: 1, Descriptors: ds(hits(math.MaxUint64, d("a=1")))},
	} {
		for independent, want := range map[bool]string{false: "OVER OVER:4294967294", true: "OVER OVER:0"} {
			s := newStage(t, envoyPolicy(t, most), Options{Independent: independent})
			s.run(t, "d", step{ds(d("a=1")), "OK OK:4294967294"})
			if got := line(s.must(t, hits)); got != want {
				t.Errorf("%v: got %q, want %q", hits, got, want)
			}
		}
	}
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	s.run(t, "d", step{ds(hits(8, d("a=1"))), "OK OK:2"}, step{ds(back(math.MaxUint64, d("a=1"))), "OK OK:10"})
}

func TestNegativeHits(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	s.run(t, "d",
		step{ds(hits(8, d("a=1"))), "OK OK:2"},
		step{ds(back(3, d("a=1"))), "OK OK:5"},
		step{ds(back(100, d("a=1"))), "OK OK:10"}, // no more than there is
		step{ds(back(0, d("a=1"))), "OK OK:10"},
		step{ds(hits(5, d("b=1")), hits(4, d("a=1"))), "OK OK:0 OK:6"},
		// What is denied gives nothing back either.
		step{ds(d("b=1"), back(4, d("a=1"))), "OVER OVER:0 OK:6"},
		step{ds(d("b=2"), back(4, d("a=1"))), "OK OK:4 OK:10"},
	)
}

func limited(count uint32, unit typev3.RateLimitUnit, multiplier *wrapperspb.UInt32Value, d *ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
	d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: count, Unit: unit, UnitMultiplier: multiplier}
	return d
}

func TestOverrides(t *testing.T) {
	for name, policy := range map[string]func() string{"nested": func() string { return tenAndFive }, "rules": nil} {
		t.Run(name, func(t *testing.T) {
			p := ownPolicy(t, "rules: [{name: none, match: {never: x}, per: all, limits: [1 per 1s]}]")
			if policy != nil {
				p = envoyPolicy(t, policy())
			}
			s := newStage(t, p, Options{})
			minute := typev3.RateLimitUnit_MINUTE
			s.run(t, "d",
				step{ds(limited(2, minute, nil, d("a=1"))), "OK OK:1"},
				step{ds(limited(2, minute, nil, d("a=2"))), "OK OK:1"},
				step{ds(limited(2, minute, nil, d("a=1"))), "OK OK:0"},
				step{ds(limited(2, minute, nil, d("a=1"))), "OVER OVER:0"},
				// What was used stays used under another count.
				step{ds(limited(5, minute, nil, d("a=1"))), "OK OK:2"},
				step{ds(limited(0, minute, nil, d("a=1"))), "OVER OVER"},
				step{ds(limited(3, minute, wrapperspb.UInt32(10), d("a=1"))), "OK OK:2"},
				step{ds(limited(3, 7, nil, d("a=1"))), "OK OK:2"}, // the week, which one enumeration lacks
			)
			answer := s.must(t, &pb.RateLimitRequest{Domain: "d", Descriptors: ds(limited(3, minute, wrapperspb.UInt32(10), d("a=1")))})
			if got, want := metadata(answer), "allowed=true descriptor=0 limit=3 per 10m remaining=1 rule="+OverrideRule; got != want {
				t.Errorf("the metadata are %q, want %q", got, want)
			}
		})
	}
}

// TestOverridesOfOneDescriptor: limits that differ, of the same entries, hold each,
// in one request and in turns.
func TestOverridesOfOneDescriptor(t *testing.T) {
	for name, p := range map[string]decide.Policy{
		"nested": envoyPolicy(t, tenAndFive),
		"rules":  ownPolicy(t, "rules: [{name: none, match: {never: x}, per: all, limits: [1 per 1s]}]"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, p, Options{})
			minute, hour := typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit_HOUR
			s.run(t, "d",
				step{ds(limited(2, minute, nil, d("a=1")), limited(100, hour, nil, d("a=1"))), "OK OK:1 OK:99"},
				step{ds(limited(2, minute, nil, d("a=1")), limited(100, hour, nil, d("a=1"))), "OK OK:0 OK:98"},
				step{ds(limited(100, hour, nil, d("a=1")), limited(2, minute, nil, d("a=1"))), "OVER OK:98 OVER:0"},
				// Asked for one after another, neither forgets the other.
				step{ds(limited(100, hour, nil, d("a=1"))), "OK OK:97"},
				step{ds(limited(2, minute, nil, d("a=1"))), "OVER OVER:0"},
				step{ds(limited(120, minute, wrapperspb.UInt32(60), d("a=1"))), "OK OK:116"}, // an hour by another name
				// Of two counts for one unit the smaller one is kept to, whichever comes first.
				step{ds(limited(100, minute, nil, d("a=2")), limited(2, minute, nil, d("a=2"))), "OK OK:0 OK:0"},
				step{ds(limited(100, minute, nil, d("a=2")), limited(2, minute, nil, d("a=2"))), "OVER OVER:0 OVER:0"},
				step{ds(limited(2, minute, nil, d("a=3")), limited(100, minute, nil, d("a=3"))), "OK OK:0 OK:0"},
				step{ds(limited(2, minute, nil, d("a=3")), limited(100, minute, nil, d("a=3"))), "OVER OVER:0 OVER:0"},
			)
		})
	}
}

func TestOverridesAreChecked(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	for want, descriptor := range map[string]*ratelimit.RateLimitDescriptor{
		"descriptor 2: descriptor: the unit of the limit is UNKNOWN": limited(1, 0, nil, d("a=1")),
		"the unit of the limit is 99, must be":                       limited(1, 99, nil, d("a=1")),
		"the unit_multiplier of the limit is 0, must be 1 to 366":    limited(1, typev3.RateLimitUnit_DAY, wrapperspb.UInt32(0), d("a=1")),
		"the unit_multiplier of the limit is 367, must be 1 to 366":  limited(1, typev3.RateLimitUnit_DAY, wrapperspb.UInt32(367), d("a=1")),
	} {
		_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: ds(d("a=1"), descriptor)})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// TestOverridesAreBounded: each limit that a caller sends is a label of metrics.
func TestOverridesAreBounded(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	for n := range uint32(maxOverrides) {
		s.ask(t, "d", limited(n+1, typev3.RateLimitUnit_DAY, nil, d("a=1")))
	}
	_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: ds(limited(maxOverrides+1, typev3.RateLimitUnit_DAY, nil, d("a=1")))})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "more than 1000 different limits") {
		t.Errorf("error is %v", err)
	}
	if got := s.ask(t, "d", limited(3, typev3.RateLimitUnit_DAY, nil, d("a=9"))); got != "OK OK:2" {
		t.Errorf("a limit that is known already: %s", got)
	}
}

// TestIndependent: each descriptor by itself, and what does not fit fills up.
func TestIndependent(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{Independent: true})
	s.run(t, "d",
		step{ds(d("a=1"), d("b=1")), "OK OK:9 OK:4"},
		step{ds(hits(5, d("a=1")), hits(5, d("b=1"))), "OVER OK:4 OVER:0"}, // 5 and 1 more are counted
		step{ds(hits(0, d("b=1"))), "OVER OVER:0"},
		step{ds(d("a=1"), d("b=1"), d("a=2")), "OVER OK:3 OVER:0 OK:9"},
		step{ds(d("a=1"), d("a=1")), "OK OK:2 OK:1"},
		step{ds(d("b=1"), back(2, d("a=1"))), "OVER OVER:0 OK:3"},
	)
	answer := s.must(t, &pb.RateLimitRequest{Domain: "d", Descriptors: ds(hits(4, d("a=1")))})
	if got, want := headers(answer), "Cache-Control: no-store, Retry-After: 60, X-Ratelimit-Limit: 10, X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: 60"; got != want {
		t.Errorf("the headers are %q, want %q", got, want)
	}
}

// TestIndependentShadow: units that a shadow has no room for fill it up as well.
func TestIndependentShadow(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: d
descriptors:
  - {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
`), Options{Independent: true})
	s.run(t, "d",
		step{ds(hits(7, d("a=1"))), "OK OK:3"},
		step{ds(hits(7, d("a=1"))), "OK OK:0"},
		step{ds(hits(1, d("a=1"))), "OK OK:0"},
	)
}

func TestHeaders(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	request := &pb.RateLimitRequest{Domain: "d", Descriptors: ds(hits(4, d("a=1")), hits(4, d("b=1")))}
	for i, want := range []string{
		"X-Ratelimit-Limit: 5, X-Ratelimit-Remaining: 1, X-Ratelimit-Reset: 60",
		"Cache-Control: no-store, Retry-After: 60, X-Ratelimit-Limit: 5, X-Ratelimit-Remaining: 1, X-Ratelimit-Reset: 60",
	} {
		if got := headers(s.must(t, request)); got != want {
			t.Errorf("answer %d: %q, want %q", i+1, got, want)
		}
	}
	s.pass(500 * time.Millisecond)
	answer := s.must(t, request)
	if got, want := metadata(answer), "allowed=false descriptor=1 limit=5 per 1m remaining=1 retry_after_ms=59500 rule=d.b"; got != want {
		t.Errorf("the metadata are %q, want %q", got, want)
	}
	if got := answer.GetStatuses()[1].GetDurationUntilReset().AsDuration(); got != time.Minute {
		t.Errorf("the reset is in %v, want it rounded up to a second", got)
	}
	if h := s.must(t, &pb.RateLimitRequest{Domain: "d", Descriptors: ds(d("none=1"))}).GetResponseHeadersToAdd(); h != nil {
		t.Errorf("nothing binds, and the headers are %v", h)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	many := make([]*ratelimit.RateLimitDescriptor, MaxDescriptors+1)
	for i := range many {
		many[i] = d(fmt.Sprintf("a=%d", i))
	}
	long := make([]string, MaxEntries+1)
	for i := range long {
		long[i] = "a=1"
	}
	for want, request := range map[string]*pb.RateLimitRequest{
		"the domain is empty":                               {Descriptors: ds(d("a=1"))},
		"there are 0 descriptors, must be 1 to 64":          {Domain: "d"},
		"there are 65 descriptors":                          {Domain: "d", Descriptors: many},
		"descriptor 2 has 33 entries, must have at most 32": {Domain: "d", Descriptors: ds(d("a=1"), d(long...))},
	} {
		_, err := s.ShouldRateLimit(t.Context(), request)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if got := s.ask(t, "d", many[:MaxDescriptors]...); strings.Count(got, "OK:9") != MaxDescriptors {
		t.Errorf("as many as there may be: %s", got)
	}
}

func TestStoreIsAway(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	s.broken.Store(true)
	_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: ds(d("a=1"))})
	if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "redis.internal") {
		t.Errorf("error is %v", err)
	}
	// Who is bound by nothing does not need it.
	if got := s.ask(t, "d", d("none=1")); got != "OK OK" {
		t.Errorf("got %s", got)
	}
}
