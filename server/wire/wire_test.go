package wire_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/server/wire"
)

// TestWritten: messages within, of lengths on both sides of what takes another byte, are
// those that protobuf writes.
func TestWritten(t *testing.T) {
	for _, n := range []int{0, 1, 100, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 16_000, 16_377, 16_378, 16_379, 16_380, 16_381, 16_384, 3 << 20} {
		text := strings.Repeat("x", n)
		inner := wire.AppendText(nil, 3, text)
		want := protowire.AppendBytes(protowire.AppendTag([]byte("before"), 2, protowire.BytesType), inner)
		got, start := wire.Begin([]byte("before"), 2)
		got = wire.End(wire.AppendText(got, 3, text), start)
		if string(got) != string(want) {
			t.Errorf("a text of %d bytes is written in %d bytes, want %d", n, len(got), len(want))
		}
	}
	b := wire.AppendBool(wire.AppendInt(wire.AppendText(nil, 1, ""), 2, 0), 3, false)
	if len(b) != 0 {
		t.Errorf("fields that are left out are written as %x", b)
	}
	if b = wire.AppendBool(wire.AppendInt(nil, 2, -1), 3, true); string(b) != "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x01" {
		t.Errorf("written as %x", b)
	}
}

func TestBadMessageWithin(t *testing.T) {
	r := wire.Read("\x0a\x02\x12\x05")
	r.Field()
	inner := r.Message()
	inner.Field()
	if inner.Bytes(); inner.Err() == nil {
		t.Error("a text beyond the end was read")
	}
	if r.Leave(&inner); !errors.Is(r.Err(), wire.ErrWire) {
		t.Errorf("the message around it: %v", r.Err())
	}
	r = wire.Read("\x0a\x01\xff")
	if r.Field(); r.String() != "" || r.Err() == nil {
		t.Error("a text that is not UTF-8 was read")
	}
}

// FuzzReader holds the reader against protowire.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x0a\x04\x0a\x01a\x12\x0b\x0c\x0a\x02\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"))
	f.Add([]byte("\x08\x96\x01\x15\x01\x02\x03\x04\x19\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, rest := wire.Read(string(message)), message
		for {
			number, kind, more := r.Field()
			if !more {
				break
			}
			wantNumber, wantKind, n := protowire.ConsumeTag(rest)
			if n < 0 || number != wantNumber || kind != wantKind {
				t.Fatalf("%x: field %d of kind %d, want %d of %d", message, number, kind, wantNumber, wantKind)
			}
			rest = rest[n:]
			m := protowire.ConsumeFieldValue(number, kind, rest)
			switch kind {
			case protowire.VarintType:
				want, _ := protowire.ConsumeVarint(rest)
				if got := r.Varint(); m >= 0 && got != want {
					t.Fatalf("%x: %d, want %d", message, got, want)
				}
			case protowire.BytesType:
				want, _ := protowire.ConsumeBytes(rest)
				if got := r.String(); m >= 0 && utf8.Valid(want) && got != string(want) {
					t.Fatalf("%x: %q, want %q", message, got, want)
				} else if !utf8.Valid(want) {
					m = -1
				}
			default:
				r.Skip(number, kind)
			}
			if (r.Err() == nil) != (m >= 0) {
				t.Fatalf("%x: %v, and protowire says %d", message, r.Err(), m)
			}
			if m < 0 {
				return
			}
			rest = rest[m:]
		}
		if r.Err() == nil && len(rest) > 0 {
			t.Fatalf("%x: ended %d bytes early", message, len(rest))
		}
	})
}
