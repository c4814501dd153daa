package envoyxds

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/wire"
)

// The fields of ratelimit.config.ratelimit.v3. They are read by hand, since the published module
// with the generated code lacks the newest of them.
const (
	configName        protowire.Number = 1
	configDomain      protowire.Number = 2
	configDescriptors protowire.Number = 3

	descriptorKey         protowire.Number = 1
	descriptorValue       protowire.Number = 2
	descriptorLimit       protowire.Number = 3
	descriptorDescriptors protowire.Number = 4
	descriptorShadow      protowire.Number = 5
	descriptorDetailed    protowire.Number = 6
	descriptorQuota       protowire.Number = 7
	descriptorMetadata    protowire.Number = 8

	limitUnit      protowire.Number = 1
	limitCount     protowire.Number = 2
	limitUnlimited protowire.Number = 3
	limitName      protowire.Number = 4
	limitReplaces  protowire.Number = 5

	replacesName protowire.Number = 1
)

// units are the lengths of the units, by their numbers.
func units() map[uint64]time.Duration {
	const day = 24 * time.Hour
	return map[uint64]time.Duration{1: time.Second, 2: time.Minute, 3: time.Hour, 4: day, 5: 30 * day, 6: 365 * day, 7: 7 * day}
}

// maxDepth is how deeply descriptors may stand in each other: as deep as a request has entries.
const maxDepth = policy.MaxEntries

// read reads the resources. The hash tells their content from others. The error is a
// [*policy.Error] with every mistake, or says which resource cannot be read.
func read(resources []*anypb.Any) (domains []nested.Domain, hash string, err error) {
	sum := sha256.New()
	r := reader{units: units()}
	for i, resource := range resources {
		if resource.GetTypeUrl() != ResourceType {
			return nil, "", fmt.Errorf("resource %d is of the type %q, must be %s", i+1, resource.GetTypeUrl(), ResourceType)
		}
		text := string(resource.GetValue())
		size := binary.BigEndian.AppendUint64(nil, uint64(len(text)))
		sum.Write(size)
		sum.Write(resource.GetValue())
		d, err := r.config(text)
		if err != nil {
			return nil, "", fmt.Errorf("resource %d, %q: %w", i+1, d.Pos.File, err)
		}
		domains = append(domains, d)
	}
	if r.mistakes != nil {
		return nil, "", &policy.Error{Mistakes: r.mistakes}
	}
	return domains, hex.EncodeToString(sum.Sum(nil)), nil
}

// reader reads resources and collects what is wrong with their content.
type reader struct {
	units    map[uint64]time.Duration
	at       policy.Position // the resource that is read
	mistakes []policy.Mistake
}

func (r *reader) add(format string, args ...any) {
	r.mistakes = append(r.mistakes, policy.Mistake{Index: -1, Pos: r.at, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) config(text string) (d nested.Domain, err error) {
	in := wire.Read(text)
	var descriptors []wire.Reader
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			d.Pos = policy.Position{File: r.at.File}
			if in.Err() != nil {
				return d, in.Err()
			}
			if d.Name == "" {
				r.add("the domain is empty")
			}
			for i := range descriptors {
				n, err := r.descriptor(&descriptors[i], d.Name, 1)
				if err != nil {
					return d, err
				}
				d.Nodes = append(d.Nodes, n)
			}
			return d, nil
		case field == configName && kind == protowire.BytesType:
			r.at.File = in.String()
		case field == configDomain && kind == protowire.BytesType:
			d.Name = in.String()
		case field == configDescriptors && kind == protowire.BytesType:
			descriptors = append(descriptors, in.Message())
		default:
			in.Skip(field, kind)
		}
	}
}

// descriptor reads one descriptor; the path is that to it, for messages.
func (r *reader) descriptor(in *wire.Reader, path string, depth int) (n nested.Node, err error) {
	if depth > maxDepth {
		r.add("%s: descriptors stand more than %d deep in each other", path, maxDepth)
		return n, nil
	}
	var limit *wire.Reader
	var below []wire.Reader
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			if in.Err() != nil {
				return n, in.Err()
			}
			n.Pos = r.at
			return n, r.within(&n, path, limit, below, depth)
		case field == descriptorKey && kind == protowire.BytesType:
			n.Key = in.String()
		case field == descriptorValue && kind == protowire.BytesType:
			n.Value = in.String()
		case field == descriptorLimit && kind == protowire.BytesType:
			inner := in.Message()
			limit = &inner
		case field == descriptorDescriptors && kind == protowire.BytesType:
			below = append(below, in.Message())
		case field == descriptorShadow && kind == protowire.VarintType:
			n.Shadow = in.Varint() != 0
		case field == descriptorDetailed && kind == protowire.VarintType:
			n.Detailed = in.Varint() != 0
		case field == descriptorQuota && kind == protowire.VarintType:
			n.Quota = in.Varint() != 0
		case field == descriptorMetadata && kind == protowire.BytesType:
			var fields structpb.Struct
			if err := proto.Unmarshal([]byte(in.Bytes()), &fields); err != nil {
				return n, wire.ErrWire
			}
			n.Metadata = fields.AsMap()
		default:
			in.Skip(field, kind)
		}
	}
}

// within reads what stands in a descriptor.
func (r *reader) within(n *nested.Node, path string, limit *wire.Reader, below []wire.Reader, depth int) (err error) {
	if path += "." + n.Key; n.Value != "" {
		path += "_" + n.Value
	}
	if n.Key == "" {
		r.add("%s: the key is empty", path)
	}
	if limit != nil {
		if n.Limit, err = r.limit(limit, path); err != nil {
			return err
		}
	}
	for i := range below {
		inner, err := r.descriptor(&below[i], path, depth+1)
		if err != nil {
			return err
		}
		n.Nodes = append(n.Nodes, inner)
	}
	return nil
}

func (r *reader) limit(in *wire.Reader, path string) (*nested.Limit, error) {
	l := new(nested.Limit)
	unit := uint64(0)
	for {
		field, kind, more := in.Field()
		switch {
		case !more && in.Err() != nil:
			return nil, in.Err()
		case !more:
			r.check(l, unit, path)
			return l, nil
		case field == limitUnit && kind == protowire.VarintType:
			unit = in.Varint()
		case field == limitCount && kind == protowire.VarintType:
			l.Count = int64(uint32(in.Varint()))
		case field == limitUnlimited && kind == protowire.VarintType:
			l.Unlimited = in.Varint() != 0
		case field == limitName && kind == protowire.BytesType:
			l.Name = in.String()
		case field == limitReplaces && kind == protowire.BytesType:
			inner := in.Message()
			name, err := replaced(&inner)
			if err != nil {
				return nil, err
			}
			l.Replaces = append(l.Replaces, name)
		default:
			in.Skip(field, kind)
		}
	}
}

// check finds what is wrong with a limit.
func (r *reader) check(l *nested.Limit, unit uint64, path string) {
	var known bool
	l.Period, known = r.units[unit]
	switch {
	case l.Unlimited && unit != 0:
		r.add("%s: there is a unit, but the limit is unlimited; leave one of them out", path)
	case !l.Unlimited && !known:
		r.add("%s: the unit is %d, must be one of SECOND to YEAR or WEEK, or the limit unlimited", path, unit)
	}
	if l.Count > headgate.MaxCount {
		l.Count = headgate.MaxCount
	}
	switch {
	case slices.Contains(l.Replaces, ""):
		r.add("%s: an entry of replaces has no name", path)
	case slices.Contains(l.Replaces, l.Name):
		r.add("%s: the limit %q would replace itself", path, l.Name)
	}
}

func replaced(in *wire.Reader) (name string, err error) {
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return name, in.Err()
		case field == replacesName && kind == protowire.BytesType:
			name = in.String()
		default:
			in.Skip(field, kind)
		}
	}
}
