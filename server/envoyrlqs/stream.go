package envoyrlqs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/share"
)

// stream is one Envoy, for one domain. One goroutine uses it.
type stream struct {
	service *Service
	id      string
	domain  string
	began   time.Time
	held    map[string]*held
}

// held is a bucket that an Envoy reports.
type held struct {
	id *pb.BucketId
	// holder names what this Envoy has of the bucket's limits. Two buckets may have the same limit.
	holder string
	// rules are the rules that divided was made by.
	rules   *policy.Set
	divided []divided
	blanket Kind  // Share if there is something to divide
	why     error // of Undivided
	demand  int64 // as share.Ask has it
	wants   bool  // there may be more for it soon
	// ends is when what the Envoy was told last may end there; zero if it was told nothing by the
	// rules in force.
	ends time.Time
}

// report answers a report.
func (x *stream) report(ctx context.Context, r *pb.RateLimitQuotaUsageReports) (*pb.RateLimitQuotaResponse, error) {
	if x.domain == "" {
		x.domain = r.GetDomain()
	}
	if err := checked(r, x.domain); err != nil {
		return nil, err
	}
	answer := new(pb.RateLimitQuotaResponse)
	for _, usage := range r.GetBucketQuotaUsages() {
		key, err := keyOf(usage.GetBucketId())
		if err != nil {
			return nil, err
		}
		h := x.held[key]
		if h == nil {
			if len(x.held) == MaxBuckets {
				return nil, status.Errorf(codes.ResourceExhausted, "the stream has %d buckets, which is the most", MaxBuckets)
			}
			h = &held{id: usage.GetBucketId(), holder: x.id + "." + text(uint64(len(x.held))), demand: -1}
			x.held[key] = h
		}
		h.learn(usage)
		answer.BucketAction = append(answer.BucketAction, x.ask(ctx, h, usage.GetNumRequestsDenied() > 0)...)
	}
	return answer, nil
}

// look answers for buckets that may get more than they have, and for all if the policy has changed.
func (x *stream) look(ctx context.Context) *pb.RateLimitQuotaResponse {
	rules := x.service.options.Rules().Set
	answer := new(pb.RateLimitQuotaResponse)
	for _, h := range x.held {
		if h.wants || h.rules != rules {
			answer.BucketAction = append(answer.BucketAction, x.ask(ctx, h, false)...)
		}
	}
	return answer
}

// learn takes the demand from a report. The first report comes with the first request, and tells
// nothing about those that follow. Later the demand falls by half at most from one report to the
// next.
func (h *held) learn(usage *pb.RateLimitQuotaUsageReports_BucketQuotaUsage) {
	elapsed := usage.GetTimeElapsed().AsDuration()
	if elapsed < lookEvery {
		return
	}
	n := float64(usage.GetNumRequestsAllowed()) + float64(usage.GetNumRequestsDenied())
	h.demand = max(int64(min(n/elapsed.Seconds()*1e9, share.MaxRate)), h.demand/2)
}

// ask returns what the Envoy is told about a bucket: one action, or none.
func (x *stream) ask(ctx context.Context, h *held, denied bool) []*pb.RateLimitQuotaResponse_BucketAction {
	s := x.service
	if rules := s.options.Rules(); h.rules != rules.Set {
		h.resolve(rules, x.domain)
	}
	switch h.blanket {
	case Undivided:
		s.fail(ctx, Undivided, h.why)
		return nil
	case AllowAll:
		return x.blanket(h, AllowAll, typepb.RateLimitStrategy_ALLOW_ALL)
	case DenyAll:
		return x.blanket(h, DenyAll, typepb.RateLimitStrategy_DENY_ALL)
	}
	grants, err := x.grants(ctx, h, denied)
	if err != nil {
		s.fail(ctx, Failed, err)
		h.wants = true
		return nil
	}
	// An Envoy has one token bucket. With the smallest rate and burst, it keeps to all limits.
	rate, burst, ttl, turn := int64(math.MaxInt64), int64(math.MaxUint32), TTL, int64(0)
	for _, g := range grants {
		rate, burst, turn = min(rate, g.Rate), min(burst, g.Burst), turn+g.Turn
		ttl = min(ttl, g.left-Grace)
	}
	some := rate > 0 && burst > 0
	switch {
	case ttl <= 0:
		return nil // What it has ends soon, and is not renewed.
	case !some && h.ends.IsZero() && time.Since(x.began) < TTL:
		// An Envoy that has just connected again may have an assignment that still holds.
		return nil
	}
	for i := range grants {
		h.divided[i].turn = grants[i].Turn
	}
	if some {
		h.ends = time.Now().Add(ttl)
		s.options.Assigned(Share)
		return action(h, ttl, &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_TokenBucket{TokenBucket: tokenBucket(rate, burst, turn)}})
	}
	return x.blanket(h, DenyAll, typepb.RateLimitStrategy_DENY_ALL)
}

// grants asks for the bucket's share of each of its limits. A token bucket that differs from the one
// that the Envoy has begins full, whichever limit it is that has changed. So its burst is paid for
// under all of them, or under none.
func (x *stream) grants(ctx context.Context, h *held, denied bool) (all []granted, err error) {
	a := share.Ask{ID: h.holder, Demand: h.demand, Denied: denied, TTL: TTL, Grace: Grace}
	a.Fresh = time.Until(h.ends) <= Grace
	ask := func(i int) (g granted, err error) {
		g, more, err := x.service.shares.ask(ctx, &h.divided[i], a)
		h.wants = h.wants || more
		return g, err
	}
	h.wants = false
	all = make([]granted, len(h.divided))
	changed := false
	for i := range all {
		if all[i], err = ask(i); err != nil {
			return nil, err
		}
		changed = changed || all[i].Turn != h.divided[i].turn
	}
	a.Fresh = true
	for i := range all {
		if changed && all[i].Turn == h.divided[i].turn {
			if all[i], err = ask(i); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (x *stream) blanket(h *held, kind Kind, rule typepb.RateLimitStrategy_BlanketRule) []*pb.RateLimitQuotaResponse_BucketAction {
	h.ends = time.Now().Add(TTL)
	x.service.options.Assigned(kind)
	return action(h, TTL, &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_BlanketRule_{BlanketRule: rule}})
}

func action(h *held, ttl time.Duration, strategy *typepb.RateLimitStrategy) []*pb.RateLimitQuotaResponse_BucketAction {
	return []*pb.RateLimitQuotaResponse_BucketAction{{
		BucketId: h.id,
		BucketAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
				AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: strategy,
			},
		},
	}}
}

// tokenBucket returns a token bucket of at most the rate, in units per second times 1e9. Envoy 1.40
// divides the tokens by the whole seconds of the interval, so the interval has no others. It fills
// the bucket continuously. If it is sent the same token bucket again, it goes on with the tokens that
// it has, so another turn has another interval.
func tokenBucket(rate, burst, turn int64) *typepb.TokenBucket {
	seconds := 100 + turn%100
	tokens := rate / 1e9 * seconds
	tokens += rate % 1e9 * seconds / 1e9
	if tokens == 0 {
		tokens, seconds = 1, (1e9+rate-1)/rate+turn%100
	}
	return &typepb.TokenBucket{
		MaxTokens: uint32(min(burst, math.MaxUint32)), TokensPerFill: wrapperspb.UInt32(uint32(min(tokens, math.MaxUint32))),
		FillInterval: durationpb.New(time.Duration(seconds) * time.Second),
	}
}

// resolve finds what binds the bucket by the rules in force. If it is what bound it before, the Envoy
// goes on with what it has.
func (h *held) resolve(rules decide.Policy, domain string) {
	before := *h
	*h = held{id: h.id, holder: h.holder, rules: rules.Set, demand: h.demand}
	defer func() {
		same := func(a, b divided) bool { return a.document == b.document && a.cost == b.cost }
		if h.blanket == before.blanket && slices.EqualFunc(h.divided, before.divided, same) {
			h.ends = before.ends
			for i := range h.divided {
				h.divided[i].turn = before.divided[i].turn
			}
		}
	}()
	entries := make(policy.Descriptor, 0, len(h.id.GetBucket()))
	for _, name := range slices.Sorted(maps.Keys(h.id.GetBucket())) {
		entries = append(entries, policy.Entry{Name: name, Value: h.id.GetBucket()[name]})
	}
	if rules.Nested == nil {
		entries = nested.Flatten(nil, domain, entries)
	} else {
		entries = append(policy.Descriptor{{Name: nested.DomainEntry, Value: domain}}, entries...)
	}
	bound, err := rules.Decide(entries, 1, nil, nil)
	switch {
	case err != nil:
		h.blanket, h.why = Undivided, err
		return
	case bound.Denied != nil:
		h.blanket = DenyAll
		return
	}
	for _, c := range bound.Checks {
		limits := c.Rule.Limits()
		for i := range limits {
			l, err := share.Of(&limits[i])
			if c.Shadow {
				continue
			}
			if err == nil && c.Units() > l.Burst {
				err = headgate.Invalid(fmt.Sprintf("rule %q", c.Rule.Name()), "", "a request of the bucket costs %d units, and the share of %v has a burst of %d at most", c.Units(), &limits[i], l.Burst)
			}
			if err != nil {
				h.blanket, h.why = Undivided, err
				return
			}
			document := strings.Join([]string{"quota", c.Rule.Name(), text(limits[i].Slot()), c.Key}, " ")
			if len(document) > headgate.MaxKey {
				sum := sha256.Sum256([]byte(document))
				document = "quota " + hex.EncodeToString(sum[:])
			}
			h.divided = append(h.divided, divided{document: document, limit: l, cost: c.Units()})
		}
	}
	if len(h.divided) == 0 {
		h.blanket = AllowAll
	}
}

// keyOf returns the key of a bucket among those of a stream.
func keyOf(id *pb.BucketId) (string, error) {
	bucket := id.GetBucket()
	if len(bucket) == 0 || len(bucket) > policy.MaxEntries {
		return "", status.Errorf(codes.InvalidArgument, "a bucket has %d entries, must have 1 to %d", len(bucket), policy.MaxEntries)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(bucket)) {
		if value := bucket[name]; len(name) > policy.MaxValue || len(value) > policy.MaxValue {
			return "", status.Errorf(codes.InvalidArgument, "a bucket has an entry of %d and %d bytes, must have at most %d each", len(name), len(value), policy.MaxValue)
		}
		for _, part := range []string{name, bucket[name]} {
			b.WriteString(text(uint64(len(part))))
			b.WriteByte(' ')
			b.WriteString(part)
		}
	}
	return b.String(), nil
}
