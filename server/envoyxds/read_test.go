package envoyxds

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
)

// text, number and message append a field.
func text(field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), s)
}

func number(field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n)
}

func message(field protowire.Number, parts ...[]byte) []byte {
	return text(field, string(join(parts...)))
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func resource(parts ...[]byte) *anypb.Any {
	return &anypb.Any{TypeUrl: ResourceType, Value: join(parts...)}
}

func TestRead(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"name": "gold", "rank": 1.0})
	if err != nil {
		t.Fatal(err)
	}
	marshaled, err := proto.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	// Fields in an order of their own, and some that are not known.
	domains, hash, err := read([]*anypb.Any{resource(
		message(configDescriptors,
			message(descriptorLimit, number(limitCount, 5), number(limitUnit, 7), message(limitReplaces, text(replacesName, "other")), text(limitName, "own"), text(99, "new")),
			text(descriptorKey, "user"), text(descriptorValue, "a*"), number(descriptorShadow, 1), number(descriptorDetailed, 1), number(descriptorQuota, 1),
			text(descriptorMetadata, string(marshaled)),
			message(descriptorDescriptors, text(descriptorKey, "path"), message(descriptorLimit, number(limitUnlimited, 1))),
			number(99, 1)),
		text(configDomain, "edge"), text(configName, "gateway"), text(99, "new"),
	)})
	if err != nil {
		t.Fatal(err)
	}
	pos := policy.Position{File: "gateway"}
	want := []nested.Domain{{Name: "edge", Pos: pos, Nodes: []nested.Node{{
		Key: "user", Value: "a*", Shadow: true, Detailed: true, Quota: true, Pos: pos, Metadata: map[string]any{"name": "gold", "rank": 1.0},
		Limit: &nested.Limit{Name: "own", Replaces: []string{"other"}, Count: 5, Period: 7 * 24 * time.Hour},
		Nodes: []nested.Node{{Key: "path", Pos: pos, Limit: &nested.Limit{Unlimited: true}}},
	}}}}
	if !reflect.DeepEqual(domains, want) || len(hash) != 64 {
		t.Errorf("got %+v and the hash %q, want %+v", domains, hash, want)
	}
}

func TestMistakes(t *testing.T) {
	key := text(descriptorKey, "user")
	inner := join(key)
	for range maxDepth + 1 {
		inner = join(key, message(descriptorDescriptors, inner))
	}
	for _, tt := range []struct {
		name, want string
		parts      [][]byte
	}{
		{"no domain", "the domain is empty", nil},
		{"no key", "edge.: the key is empty", [][]byte{message(configDescriptors, text(descriptorValue, ""))}},
		{"no unit", "edge.user: the unit is 0", [][]byte{message(configDescriptors, key, message(descriptorLimit, number(limitCount, 1)))}},
		{"a unit that is none", "edge.user_x: the unit is 8", [][]byte{message(configDescriptors, key, text(descriptorValue, "x"), message(descriptorLimit, number(limitUnit, 8)))}},
		{"unlimited with a unit", "edge.user: there is a unit", [][]byte{message(configDescriptors, key, message(descriptorLimit, number(limitUnit, 1), number(limitUnlimited, 1)))}},
		{"replaces itself", `the limit "n" would replace itself`, [][]byte{message(configDescriptors, key, message(descriptorLimit, number(limitUnit, 1), text(limitName, "n"), message(limitReplaces, text(replacesName, "n"))))}},
		{"replaces nothing", "an entry of replaces has no name", [][]byte{message(configDescriptors, key, message(descriptorLimit, number(limitUnit, 1), message(limitReplaces)))}},
		{"too deep", "more than 32 deep", [][]byte{text(configDescriptors, string(inner))}},
	} {
		if tt.name != "no domain" {
			tt.parts = append(tt.parts, text(configDomain, "edge"))
		}
		_, _, err := read([]*anypb.Any{resource(tt.parts...)})
		var found *policy.Error
		if !errors.As(err, &found) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	for name, one := range map[string]*anypb.Any{
		"another type": {TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"},
		"cut off":      resource(text(configDomain, "edge")[:3]),
		"bad metadata": resource(text(configDomain, "e"), message(configDescriptors, key, text(descriptorMetadata, "\xff"))),
	} {
		if _, _, err := read([]*anypb.Any{one}); err == nil || !strings.Contains(err.Error(), "resource 1") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// FuzzRead: whatever a management server sends is read, or refused, and what is read can be told
// from other content.
func FuzzRead(f *testing.F) {
	f.Add(join(text(configDomain, "edge"), message(configDescriptors, text(descriptorKey, "user"), message(descriptorLimit, number(limitUnit, 1), number(limitCount, 3)))))
	f.Add([]byte("\x1a\x02\x22\x00"))
	f.Fuzz(func(t *testing.T, value []byte) {
		domains, hash, err := read([]*anypb.Any{{TypeUrl: ResourceType, Value: value}})
		if err != nil {
			return
		}
		again, same, err := read([]*anypb.Any{{TypeUrl: ResourceType, Value: value}})
		if err != nil || same != hash || fmt.Sprint(again) == "" || len(domains) != 1 {
			t.Errorf("read again: %v, %q and %q", err, hash, same)
		}
		if _, _, err := nested.New(domains); err != nil {
			if _, ok := errors.AsType[*policy.Error](err); !ok {
				t.Errorf("the tree: %v", err)
			}
		}
	})
}
