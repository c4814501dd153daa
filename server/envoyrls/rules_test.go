package envoyrls

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/server/wire"
)

const ownRules = `
deny:
  - {name: scanners, match: {path: /wp-*}}
allow:
  - {name: monitoring, match: {ip: 192.0.2.0/24}}
rules:
  - name: token
    match: {domain: edge, path: /token}
    per: [api_key]
    algorithm: fixed_window
    limits: [3 per 1m, 2 per 1s]
  - name: everyone
    match: {domain: edge}
    algorithm: fixed_window
    per: all
    limits: [100 per calendar day]
  - name: address
    match: {descriptor: remote_address}
    per: [ip/64]
    algorithm: fixed_window
    limits: [5 per 90s]
  - name: twice
    match: {domain: pairs, "user:2": present}
    per: [user, "user:2"]
    algorithm: fixed_window
    limits: [5 per 1m]
limits:
  - {name: job, config: [{limit: 4, period: 60}]}
`

func TestOwnRules(t *testing.T) {
	s := newStage(t, ownPolicy(t, ownRules), Options{})
	s.run(t, "edge",
		// A descriptor with all facts meets all rules.
		step{ds(d("path=/token", "api_key=k1")), "OK OK:1"},
		// Several come under the rule for everyone, which counts the request once.
		step{ds(d("path=/token", "api_key=k1"), d("path=/token", "api_key=k2"), d("x=y")), "OK OK:0 OK:1 OK:98"},
		step{ds(d("path=/token", "api_key=k1"), d("x=y")), "OVER OVER:0 OK:98"},
		step{ds(d("x=y")), "OK OK:97"},
		step{ds(d("x=y"), d("path=/wp-admin")), "OVER OK:97 OVER"},
		step{ds(d("remote_address=192.0.2.9")), "OK OK:all"},
		step{ds(d("remote_address=2001:db8::1")), "OK OK:4"},
		step{ds(d("remote_address=2001:db8::2")), "OK OK:3"},
	)
	s.run(t, "pairs",
		step{ds(d("user=a", "user=b")), "OK OK:4"},
		step{ds(d("user=a", "user=c")), "OK OK:4"},
		step{ds(d("user=a")), "OK OK"},
	)
	answer := s.must(t, &pb.RateLimitRequest{Domain: "edge", Descriptors: ds(d("path=/wp-admin"))})
	if got, want := metadata(answer), "allowed=false descriptor=0 list=scanners"; got != want {
		t.Errorf("the metadata are %q, want %q", got, want)
	}
	limit := s.must(t, &pb.RateLimitRequest{Domain: "edge", Descriptors: ds(d("x=y"))}).GetStatuses()[0].GetCurrentLimit()
	if limit.GetName() != "everyone" || limit.GetUnit() != pb.RateLimitResponse_RateLimit_DAY || limit.GetRequestsPerUnit() != 100 {
		t.Errorf("a calendar day: %v", limit)
	}
	limit = s.must(t, &pb.RateLimitRequest{Domain: "x", Descriptors: ds(d("remote_address=2001:db8::1"))}).GetStatuses()[0].GetCurrentLimit()
	if limit.GetUnit() != pb.RateLimitResponse_RateLimit_SECOND || limit.GetUnitMultiplier().GetValue() != 90 {
		t.Errorf("90 seconds: %v", limit)
	}
}

func TestRuleByName(t *testing.T) {
	s := newStage(t, ownPolicy(t, ownRules), Options{})
	s.run(t, "any",
		step{ds(d(RuleEntry+"=job", "id=j1")), "OK OK:3"},
		step{ds(d(RuleEntry+"=job", "id=j2")), "OK OK:3"},
		step{ds(d(RuleEntry+"=job", "id=j1"), d(RuleEntry+"=job", "other=j1")), "OK OK:1 OK:1"},
		step{ds(d(RuleEntry+"=job", "id="+strings.Repeat("long", 1000))), "OK OK:3"},
	)
	for rule, want := range map[string]string{"none": `there is no rule "none"`, "token": "only direct rules can be named"} {
		_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "any", Descriptors: ds(d(RuleEntry + "=" + rule))})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", rule, err, want)
		}
	}
}

// raw sends bytes as they are, and receives messages.
type raw struct{ encoding.CodecV2 }

func (r raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// TestTextsAreAnyBytes: a client must not be able to make its check fail.
func TestTextsAreAnyBytes(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	send := func(value string) (string, error) {
		var w wire.Writer
		w.Text(1, "d")
		descriptor := w.Begin(2)
		entry := w.Begin(1)
		w.Text(1, "a")
		w.Text(2, value)
		w.End(entry)
		w.End(descriptor)
		answer := new(pb.RateLimitResponse)
		err := s.conn.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, w.B, answer, grpc.ForceCodecV2(raw{encoding.GetCodecV2(proto.Name)}))
		return line(answer), err
	}
	for i, want := range []string{"OK OK:9", "OK OK:8"} {
		if got, err := send("\xff\xfe"); err != nil || got != want {
			t.Errorf("request %d: %s, %v, want %s", i+1, got, err, want)
		}
	}
	if got, err := send("\xff"); err != nil || got != "OK OK:9" {
		t.Errorf("another value: %s, %v", got, err)
	}
	if got, err := send(strings.Repeat("x", 100_000)); err != nil || got != "OK OK:9" {
		t.Errorf("a long value: %s, %v", got, err)
	}
}

func TestBrokenMessages(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	for _, wire := range []string{"\x0a", "\x0a\x05ab", "\x12\x02\x0a", "\x12\x03\x0a\x01\x0a", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x12\x02\x12\x01", "\x12\x03\x1a\x01\x08"} {
		err := s.conn.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, []byte(wire), new(pb.RateLimitResponse), grpc.ForceCodecV2(raw{encoding.GetCodecV2(proto.Name)}))
		if status.Code(err) != codes.Internal {
			t.Errorf("%q: error is %v", wire, err)
		}
	}
	if got := s.ask(t, "d", d("a=1")); got != "OK OK:9" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestAllOrNothingUnderConcurrency: two limits that are asked for together end
// equally used, whatever meets whatever.
func TestAllOrNothingUnderConcurrency(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 60}}
`), Options{})
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 10 {
				answer, err := s.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "d", Descriptors: ds(d("a=1"), d("b=1"))})
				if err != nil {
					t.Error(err)
				} else if answer.GetOverallCode() == pb.RateLimitResponse_OK {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 60 {
		t.Errorf("%d requests were admitted, want 60", n)
	}
	if got := s.ask(t, "d", hits(0, d("a=1"))); got != "OK OK:40" {
		t.Errorf("the wider limit: %s", got)
	}
}

// TestReload: a request uses one policy throughout, the next one the new one, and
// what was used stays used.
func TestReload(t *testing.T) {
	s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
	s.run(t, "d", step{ds(hits(4, d("a=1"))), "OK OK:6"})
	p := envoyPolicy(t, strings.Replace(tenAndFive, "10", "20", 1))
	s.policy.Store(&p)
	s.run(t, "d", step{ds(hits(4, d("a=1"))), "OK OK:12"})
	own := ownPolicy(t, ownRules)
	s.policy.Store(&own)
	s.run(t, "d", step{ds(d("a=1")), "OK OK"})
}

// TestListsReplaceOthers: an entry of a list that answers one descriptor, and a rule
// that binds one, keep what they replace from the others.
func TestListsReplaceOthers(t *testing.T) {
	s := newStage(t, ownPolicy(t, `
deny:
  - {name: banned, match: {user: banned}, replaces: [path]}
allow:
  - {name: free, match: {plan: free}, replaces: [path, banned]}
rules:
  - {name: path, match: {path: present}, per: all, limits: [1 per 1d], algorithm: fixed_window}
  - {name: pardon, match: {pardon: present}, per: all, limits: [9 per 1d], algorithm: fixed_window, replaces: [banned]}
`), Options{})
	s.run(t, "x",
		step{ds(d("path=a"), d("plan=free")), "OK OK OK:all"},
		step{ds(d("user=banned"), d("plan=free")), "OK OK OK:all"},
		step{ds(d("user=banned"), d("pardon=yes")), "OK OK OK:8"},
		step{ds(d("user=banned"), d("path=a")), "OVER OVER OK"},
		step{ds(d("path=a")), "OK OK:0"},
		step{ds(d("path=a")), "OVER OVER:0"},
		step{ds(d("path=a"), d("plan=free")), "OK OK OK:all"},
	)
}

// TestQuotaMode: what is beyond the limits of a rule in quota mode is told by the place of its
// descriptor, and is denied if no quota of the request has anything left.
func TestQuotaMode(t *testing.T) {
	s := newStage(t, ownPolicy(t, `
rules:
  - {name: user, match: {user: present}, per: [user], limits: [1 per 1d], mode: quota}
  - {name: path, match: {path: present}, per: all, limits: [1 per 1d], mode: shadow}
  - {name: team, match: {team: present}, per: all, limits: [3 per 1d], mode: quota}
`), Options{})
	ask := &pb.RateLimitRequest{Domain: "x", Descriptors: ds(d("path=a"), d("user=a"), d("team=a"))}
	if got := metadata(s.must(t, ask)); got != "allowed=true" {
		t.Errorf("within the limits the metadata are %q", got)
	}
	answer := s.must(t, ask)
	if got, want := line(answer)+", "+metadata(answer), "OK OK:0 OVER:0 OK:1, allowed=true quotaModeViolations=[1] shadow_denied=[path user]"; got != want {
		t.Errorf("beyond them they are %q, want %q", got, want)
	}
	answer = s.must(t, &pb.RateLimitRequest{Domain: "x", Descriptors: ds(d("path=a"), d("user=a"))})
	if got, want := line(answer)+", "+metadata(answer), "OVER OK:0 OVER:0, allowed=false descriptor=1 limit=1 per 1d quotaModeViolations=[1] remaining=0 retry_after_ms=8.64e+07 rule=user shadow_denied=[path]"; got != want {
		t.Errorf("without another quota they are %q, want %q", got, want)
	}
}

// TestQuotaOfZero: a configuration's limit of zero in quota mode is exceeded by every
// request, unless it is in shadow mode too.
func TestQuotaOfZero(t *testing.T) {
	s := newStage(t, envoyPolicy(t, `
domain: x
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: b, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: c, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: d, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
`), Options{})
	answer := s.must(t, &pb.RateLimitRequest{Domain: "x", HitsAddend: 2, Descriptors: ds(d("a=1"), d("b=1"), d("c=1"), d("d=1"))})
	if got, want := line(answer)+", "+metadata(answer), "OK OVER:0 OK:0 OK:1 OK:3, allowed=true quotaModeViolations=[0] shadow_denied=[x.a x.b x.c]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUnenforced: bounds on what is in progress are left out, since a question ends before the
// request does, and the answer names their rules, each once.
func TestUnenforced(t *testing.T) {
	s := newStage(t, ownPolicy(t, `
rules:
  - {name: reports, match: {user: present}, per: [user], in_progress: 1}
  - {name: exports, match: {path: /export}, per: [user], in_progress: 1, limits: [5 per 1d]}
`), Options{})
	answer := s.must(t, &pb.RateLimitRequest{Domain: "x", Descriptors: ds(d("user=a"), d("user=b"), d("user=a", "path=/export"))})
	if got, want := metadata(answer), "allowed=true descriptor=2 limit=5 per 1d remaining=4 rule=exports unenforced=[reports exports]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := metadata(s.must(t, &pb.RateLimitRequest{Domain: "x", Descriptors: ds(d("path=/other"))})); got != "allowed=true" {
		t.Errorf("of a request that nothing binds: %q", got)
	}
}
