package wire

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Writer appends the fields of one message to its bytes.
type Writer struct{ B []byte }

// Number appends a number. Zero is left out.
func (w *Writer) Number(field protowire.Number, n uint64) { w.B = AppendInt(w.B, field, int64(n)) }

// Text appends a text, even if it is empty.
func (w *Writer) Text(field protowire.Number, text string) {
	w.B = protowire.AppendString(protowire.AppendTag(w.B, field, protowire.BytesType), text)
}

// Bool appends a bool, even if it is false.
func (w *Writer) Bool(field protowire.Number, v bool) {
	w.B = protowire.AppendVarint(protowire.AppendTag(w.B, field, protowire.VarintType), protowire.EncodeBool(v))
}

// Float appends a double, even if it is zero.
func (w *Writer) Float(field protowire.Number, v float64) {
	w.B = protowire.AppendFixed64(protowire.AppendTag(w.B, field, protowire.Fixed64Type), math.Float64bits(v))
}

// Begin begins a message within, which lasts until End is called with the mark.
func (w *Writer) Begin(field protowire.Number) (mark int) {
	w.B, mark = Begin(w.B, field)
	return mark
}

// End ends the message within that began at the mark.
func (w *Writer) End(mark int) { w.B = End(w.B, mark) }

// Struct appends a google.protobuf.Struct of values as package encoding/json makes them, its fields
// in the order of their names.
func (w *Writer) Struct(field protowire.Number, fields map[string]any) {
	mark := w.Begin(field)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		outer, inner := w.entry(name)
		w.value(fields[name])
		w.end(outer, inner)
	}
	w.End(mark)
}

// value appends what a google.protobuf.Value has: the field of its kind.
func (w *Writer) value(v any) {
	switch v := v.(type) {
	case float64:
		w.Float(2, v)
	case string:
		w.Text(3, v)
	case bool:
		w.Bool(4, v)
	case map[string]any:
		w.Struct(5, v)
	case []any:
		list := w.Begin(6)
		for _, item := range v {
			mark := w.Begin(1)
			w.value(item)
			w.End(mark)
		}
		w.End(list)
	default:
		w.B = protowire.AppendVarint(protowire.AppendTag(w.B, 1, protowire.VarintType), 0) // null
	}
}

// TextEntry appends an entry of a google.protobuf.Struct, as do the other methods of this kind.
// The Struct is the message that is being written.
func (w *Writer) TextEntry(name, text string) {
	outer, inner := w.entry(name)
	w.Text(3, text)
	w.end(outer, inner)
}

// NumberEntry is TextEntry for a number.
func (w *Writer) NumberEntry(name string, n int64) {
	outer, inner := w.entry(name)
	w.Float(2, float64(n))
	w.end(outer, inner)
}

// BoolEntry is TextEntry for a bool.
func (w *Writer) BoolEntry(name string, v bool) {
	outer, inner := w.entry(name)
	w.Bool(4, v)
	w.end(outer, inner)
}

// StructEntry is TextEntry for a structure; see [Writer.Struct].
func (w *Writer) StructEntry(name string, fields map[string]any) {
	outer, inner := w.entry(name)
	w.Struct(5, fields)
	w.end(outer, inner)
}

// entry begins an entry of a Struct, and its value.
func (w *Writer) entry(name string) (outer, inner int) {
	outer = w.Begin(1)
	w.Text(1, name)
	return outer, w.Begin(2)
}

func (w *Writer) end(outer, inner int) {
	w.End(inner)
	w.End(outer)
}

// ListEntry begins an entry of a google.protobuf.Struct that is a list. Without values it is left
// out.
func (w *Writer) ListEntry(name string) List { return List{w: w, name: name} }

// List is a list that is being written. End must be called.
type List struct {
	w                   *Writer
	name                string
	outer, inner, marks int
	begun               bool
}

// Text appends a text to the list.
func (l *List) Text(text string) {
	mark := l.value()
	l.w.Text(3, text)
	l.w.End(mark)
}

// Number appends a number to the list.
func (l *List) Number(n int64) {
	mark := l.value()
	l.w.Float(2, float64(n))
	l.w.End(mark)
}

// value begins a value.
func (l *List) value() (mark int) {
	if !l.begun {
		l.begun = true
		l.outer, l.inner = l.w.entry(l.name)
		l.marks = l.w.Begin(6)
	}
	return l.w.Begin(1)
}

// End ends the list.
func (l *List) End() {
	if l.begun {
		l.w.End(l.marks)
		l.w.end(l.outer, l.inner)
	}
}
