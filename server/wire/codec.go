package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Message is a message that reads itself from its bytes, which it must not keep.
type Message interface{ ReadWire(message []byte) error }

// Written is a message as it is sent.
type Written []byte

// Codec returns gRPC's own codec, except for a [Message] that is received and for [Written] bytes
// that are sent. A server with a service of either kind needs it, by grpc.ForceServerCodecV2.
//
// Generated messages refuse texts that are not UTF-8. Envoy sends the values of headers as they
// come, so a client could make its check fail by one byte, and get around its limits where a check
// that fails lets requests pass. A Message may accept any bytes.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if w, ok := v.(Written); ok {
		return mem.BufferSlice{mem.SliceBuffer(w)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(Message); ok {
		all := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer all.Free()
		return m.ReadWire(all.ReadOnlyData())
	}
	return c.CodecV2.Unmarshal(data, v)
}
