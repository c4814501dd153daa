package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Reader reads the fields of one message, out of a text whose parts it hands out without
// copying them. What cannot be read ends the reading; see [Reader.Err].
type Reader struct {
	text string
	pos  int
	bad  bool
}

// Read returns a reader of the message in the text.
func Read(text string) Reader { return Reader{text: text} }

// ErrWire is the error of a message that is not protobuf.
var ErrWire = errors.New("the message is not what protobuf has for its type, or has text that is not UTF-8")

// Field reads a tag, and reports whether there is one. The field's value is to be read by
// the method for its kind, or passed over with Skip.
func (r *Reader) Field() (protowire.Number, protowire.Type, bool) {
	if r.bad || r.pos == len(r.text) {
		return 0, 0, false
	}
	number, kind := protowire.DecodeTag(r.Varint())
	if number < protowire.MinValidNumber {
		r.bad = true
	}
	return number, kind, !r.bad
}

// Varint reads a number.
func (r *Reader) Varint() uint64 {
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

// Bytes reads what stands behind its length: text, bytes or another message.
func (r *Reader) Bytes() string {
	n := r.Varint()
	if r.bad || n > uint64(len(r.text)-r.pos) {
		r.bad = true
		return ""
	}
	s := r.text[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return s
}

// String reads text, which protobuf wants to be UTF-8.
func (r *Reader) String() string {
	s := r.Bytes()
	if !utf8.ValidString(s) {
		r.bad = true
		return ""
	}
	return s
}

// Message returns a reader of the message within. When that has been read, Leave is to be
// called with it.
func (r *Reader) Message() Reader { return Reader{text: r.Bytes()} }

// Rest returns what has not been read yet: all of a text or bytes that Message has returned.
func (r *Reader) Rest() string {
	s := r.text[r.pos:]
	r.pos = len(r.text)
	return s
}

// Leave ends the reading of a message within. If that could not be read, neither can the
// one around it.
func (r *Reader) Leave(inner *Reader) { r.bad = r.bad || inner.bad }

// Skip passes over a field that is not known, as protobuf wants it.
func (r *Reader) Skip(number protowire.Number, kind protowire.Type) {
	switch kind {
	case protowire.VarintType:
		r.Varint()
	case protowire.BytesType:
		r.Bytes()
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

// Err is why reading has ended early, or nil.
func (r *Reader) Err() error {
	if r.bad {
		return fmt.Errorf("%w, at byte %d of %d", ErrWire, r.pos, len(r.text))
	}
	return nil
}
