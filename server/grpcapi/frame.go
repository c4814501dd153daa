package grpcapi

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"
)

// frame is a message of a stream in its wire form. The server's codec, which serves other services
// too, hands over the bytes without decoding them, because a frame has its own ProtoMethods.
type frame struct {
	// Message is an empty message of the type that the frame stands for. Nobody reads its fields.
	protoreflect.Message

	text string // the received message, as a copy
	out  []byte // the message to send
}

func newFrame(m protoreflect.ProtoMessage) *frame { return &frame{Message: m.ProtoReflect()} }

// ProtoReflect implements proto.Message.
func (f *frame) ProtoReflect() protoreflect.Message { return f }

// Interface implements protoreflect.Message.
func (f *frame) Interface() protoreflect.ProtoMessage { return f }

// Reset releases the received message. The codec calls it before it receives the next one.
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
		f.text = string(in.Buf) // The codec reuses the buffer.
		return protoiface.UnmarshalOutput{Flags: protoiface.UnmarshalInitialized}, nil
	},
}
