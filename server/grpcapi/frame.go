package grpcapi

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"
)

// frame stands for a message of a stream in the form that it has on the wire, so
// that the server's codec, which serves other services too, hands over the bytes
// instead of reading them itself. As a message it has methods of its own for that,
// which protobuf provides for.
type frame struct {
	// Message is an empty one of the type that is meant; nobody reads its fields.
	protoreflect.Message

	text string // of a message that was received; a string of its own
	out  []byte // of a message that is to be sent
}

func newFrame(m protoreflect.ProtoMessage) *frame { return &frame{Message: m.ProtoReflect()} }

// ProtoReflect implements proto.Message.
func (f *frame) ProtoReflect() protoreflect.Message { return f }

// Interface implements protoreflect.Message.
func (f *frame) Interface() protoreflect.ProtoMessage { return f }

// Reset is called before a message is received.
func (f *frame) Reset() { f.text = "" }

// ProtoMethods implements protoreflect.Message.
func (f *frame) ProtoMethods() *protoiface.Methods { return &frameMethods }

var frameMethods = protoiface.Methods{
	Size: func(in protoiface.SizeInput) protoiface.SizeOutput {
		f, _ := in.Message.(*frame)
		return protoiface.SizeOutput{Size: len(f.out)}
	},
	Marshal: func(in protoiface.MarshalInput) (protoiface.MarshalOutput, error) {
		f, _ := in.Message.(*frame)
		return protoiface.MarshalOutput{Buf: append(in.Buf, f.out...)}, nil
	},
	Unmarshal: func(in protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error) {
		f, _ := in.Message.(*frame)
		f.text = string(in.Buf) // The buffer is used again.
		return protoiface.UnmarshalOutput{Flags: protoiface.UnmarshalInitialized}, nil
	},
}
