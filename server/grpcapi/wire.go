package grpcapi

import (
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// What follows reads and writes the messages of streams by hand: a message of
// protobuf is fields, each with a tag (number and kind) before it. Everything else
// uses the generated code, and tests hold the two against each other.

// reader reads the fields of one message, out of a text whose parts it hands out
// without copying them.
type reader struct {
	text string
	pos  int
	bad  bool
}

// errWire is the error of a message that is not protobuf.
var errWire = errors.New("the message is not what protobuf has for its type, or has text that is not UTF-8")

// field reads a tag, and reports whether there is one.
func (r *reader) field() (protowire.Number, protowire.Type, bool) {
	if r.bad || r.pos == len(r.text) {
		return 0, 0, false
	}
	number, kind := protowire.DecodeTag(r.varint())
	if number < protowire.MinValidNumber {
		r.bad = true
	}
	return number, kind, !r.bad
}

func (r *reader) varint() uint64 {
	var n uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if r.pos == len(r.text) {
			break
		}
		c := r.text[r.pos]
		r.pos++
		if shift == 63 && c > 1 {
			break
		}
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return n
		}
	}
	r.bad = true
	return 0
}

// bytes reads what stands behind its length: text, bytes or another message.
func (r *reader) bytes() string {
	n := r.varint()
	if r.bad || n > uint64(len(r.text)-r.pos) {
		r.bad = true
		return ""
	}
	s := r.text[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return s
}

// string reads text, which protobuf wants to be UTF-8.
func (r *reader) string() string {
	s := r.bytes()
	if !utf8.ValidString(s) {
		r.bad = true
		return ""
	}
	return s
}

// skip passes over a field that is not known here, as protobuf wants it.
func (r *reader) skip(number protowire.Number, kind protowire.Type) {
	switch kind {
	case protowire.VarintType:
		r.varint()
	case protowire.BytesType:
		r.bytes()
	default:
		// Groups and numbers of fixed length: none of our messages has them.
		n := protowire.ConsumeFieldValue(number, kind, []byte(r.text[r.pos:]))
		if n < 0 {
			r.bad = true
			return
		}
		r.pos += n
	}
}

// err is why reading has ended early, or nil.
func (r *reader) err() error {
	if r.bad {
		return fmt.Errorf("%w, at byte %d of %d", errWire, r.pos, len(r.text))
	}
	return nil
}

// Fields with the value that they have when they are left out are left out.

func appendBool(b []byte, number protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(protowire.AppendTag(b, number, protowire.VarintType), 1)
}

func appendInt(b []byte, number protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v))
}

func appendText(b []byte, number protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
}

// begin begins a message within another, whose end is not known yet, and leaves a
// byte for its length.
func begin(b []byte, number protowire.Number) (_ []byte, start int) {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	return b, len(b)
}

// end ends the message that begins at start. One of 128 bytes and more is moved,
// to make room for its length.
func end(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	more := (bits.Len(uint(n)) - 1) / 7
	for range more {
		b = append(b, 0)
	}
	copy(b[start+more:], b[start:start+n])
	protowire.AppendVarint(b[:start-1], uint64(n))
	return b
}
