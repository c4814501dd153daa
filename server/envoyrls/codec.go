package envoyrls

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec is gRPC's own codec, but for the messages of this package, which read and
// write themselves. A server of the service must have it, by
// grpc.ForceServerCodecV2; what other services have is coded as ever.
//
// Generated messages refuse texts that are not UTF-8. Envoy sends the values of
// headers as they come, so that a client could make its check fail by one byte,
// and get around its limits where a check that fails lets requests pass. What is
// read here may be any bytes.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(answer); ok {
		return mem.BufferSlice{mem.SliceBuffer(a)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		wire := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer wire.Free()
		return r.read(wire.ReadOnlyData())
	}
	return c.CodecV2.Unmarshal(data, v)
}
