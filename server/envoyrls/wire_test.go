package envoyrls

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/wire"
)

// FuzzRead holds what is read here against what the generated messages read.
func FuzzRead(f *testing.F) {
	for _, r := range []*pb.RateLimitRequest{
		{},
		{Domain: "d", Descriptors: ds(d("a=1", "b="), d()), HitsAddend: 1 << 31},
		{Domain: "d", Descriptors: ds(hits(0, d("a=1")), back(1<<40, d("a=1")), limited(5, 3, wrapperspb.UInt32(0), d("x=y")))},
	} {
		message, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
	}
	f.Add([]byte("\x12\x02\x0a\x00\x12\x04\x12\x02\x08\x05\x09aaaaaaaa\x0b\x0c"))
	f.Fuzz(func(t *testing.T, message []byte) {
		var got request
		err := got.ReadWire(message)
		want := new(pb.RateLimitRequest)
		wantErr := proto.Unmarshal(message, want)
		if wantErr != nil {
			// Theirs refuses texts that are not UTF-8, and descends into what is
			// beyond the bounds; what it accepts is accepted here.
			return
		}
		if err != nil {
			t.Fatalf("an error for what is a message: %v", err)
		}
		if got.domain != want.GetDomain() || got.hits != want.GetHitsAddend() || got.sent != len(want.GetDescriptors()) {
			t.Fatalf("read %+v, want %v", got, want)
		}
		for i := range got.descriptors {
			compare(t, &got.descriptors[i], want.GetDescriptors()[i])
		}
		got.reset()
		if got.domain != "" || got.sent != 0 || len(got.descriptors) != 0 {
			t.Fatalf("after a reset: %+v", got)
		}
	})
}

func compare(t *testing.T, got *descriptor, want *ratelimit.RateLimitDescriptor) {
	t.Helper()
	if got.sent != len(want.GetEntries()) || got.limited != (want.GetLimit() != nil) || got.hasHits != (want.GetHitsAddend() != nil) ||
		got.hits != want.GetHitsAddend().GetValue() || got.negative != want.GetIsNegativeHits() {
		t.Fatalf("read %+v, want %v", got, want)
	}
	for i, e := range got.entries {
		if w := want.GetEntries()[i]; e != (policy.Entry{Name: w.GetKey(), Value: w.GetValue()}) {
			t.Fatalf("entry %d is %+v, want %v", i, e, w)
		}
	}
	limit := want.GetLimit()
	if w := (override{limit.GetRequestsPerUnit(), int32(limit.GetUnit()), limit.GetUnitMultiplier() != nil, limit.GetUnitMultiplier().GetValue()}); got.limit != w {
		t.Fatalf("the limit is %+v, want %+v", got.limit, w)
	}
}

// TestScratchIsClean: what one request had must not be found in the next one.
func TestScratchIsClean(t *testing.T) {
	var r request
	seed := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := &pb.RateLimitRequest{Domain: strings.Repeat("d", seed.IntN(3)), HitsAddend: seed.Uint32N(3)}
		for range seed.IntN(4) {
			one := new(ratelimit.RateLimitDescriptor)
			for range seed.IntN(4) {
				one.Entries = append(one.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: strings.Repeat("k", seed.IntN(2)), Value: strings.Repeat("v", seed.IntN(2))})
			}
			if seed.IntN(2) == 0 {
				hits(seed.Uint64N(3), one)
			}
			if seed.IntN(2) == 0 {
				limited(seed.Uint32N(3), typev3.RateLimitUnit(seed.IntN(3)), wrapperspb.UInt32(seed.Uint32N(3)), one)
			}
			one.IsNegativeHits = seed.IntN(2) == 0
			want.Descriptors = append(want.Descriptors, one)
		}
		message, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		r.reset()
		if err := r.ReadWire(message); err != nil {
			t.Fatal(err)
		}
		if r.domain != want.GetDomain() || r.sent != len(want.GetDescriptors()) || len(r.descriptors) != r.sent {
			t.Fatalf("read %+v, want %v", r, want)
		}
		for i := range r.descriptors {
			compare(t, &r.descriptors[i], want.GetDescriptors()[i])
		}
	}
}

// TestWriter: lengths below and above those that one byte holds.
func TestWriter(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 128, 129, 16380, 16384, 20000, 3_000_000} {
		text := strings.Repeat("x", n)
		var w wire.Writer
		outer := w.Begin(2)
		writeLimit(&w, text, 7, 0, 0)
		w.End(outer)
		answer := new(pb.RateLimitResponse)
		if err := proto.Unmarshal(w.B, answer); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if got := answer.GetStatuses()[0].GetCurrentLimit(); got.GetName() != text || got.GetRequestsPerUnit() != 7 {
			t.Fatalf("%d: read %d bytes back", n, len(got.GetName()))
		}
	}
	if !utf8.ValidString(OverrideRule) {
		t.Error("a name that no client could read")
	}
}
