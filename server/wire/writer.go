package wire

import (
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendBool appends a field, unless it has the value that it has when it is left out.
func AppendBool(b []byte, number protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(protowire.AppendTag(b, number, protowire.VarintType), 1)
}

// AppendInt is AppendBool for a number.
func AppendInt(b []byte, number protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v))
}

// AppendText is AppendBool for a text.
func AppendText(b []byte, number protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
}

// Begin begins a message within another, whose length is not known yet. Most are shorter
// than 128 bytes: a byte is left for their length.
func Begin(b []byte, number protowire.Number) (_ []byte, start int) {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	return b, len(b)
}

// End ends the message that begins at start. A message of 128 bytes and more is moved, to
// make room for its length.
func End(b []byte, start int) []byte {
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
