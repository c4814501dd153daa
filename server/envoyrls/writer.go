package envoyrls

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/server/wire"
)

// writer appends the fields of a message.
type writer struct{ b []byte }

// number appends a varint. Zero is what a field has that is not there.
func (w *writer) number(field protowire.Number, n uint64) { w.b = wire.AppendInt(w.b, field, int64(n)) }

// bool and float append values that are there even if they are zero.
func (w *writer) bool(field protowire.Number, v bool) {
	w.b = protowire.AppendVarint(protowire.AppendTag(w.b, field, protowire.VarintType), protowire.EncodeBool(v))
}

func (w *writer) float(field protowire.Number, v float64) {
	w.b = protowire.AppendFixed64(protowire.AppendTag(w.b, field, protowire.Fixed64Type), math.Float64bits(v))
}

func (w *writer) string(field protowire.Number, text string) {
	w.b = protowire.AppendString(protowire.AppendTag(w.b, field, protowire.BytesType), text)
}

// begin begins a message within, which lasts until end is called with the mark.
func (w *writer) begin(field protowire.Number) (mark int) {
	w.b, mark = wire.Begin(w.b, field)
	return mark
}

func (w *writer) end(mark int) { w.b = wire.End(w.b, mark) }

// structure appends a google.protobuf.Struct of values as package encoding/json makes them, its
// fields in the order of their names.
func (w *writer) structure(field protowire.Number, fields map[string]any) {
	mark := w.begin(field)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		outer, inner := w.entry(name)
		w.value(fields[name])
		w.end(inner)
		w.end(outer)
	}
	w.end(mark)
}

// value appends what a google.protobuf.Value has: the field of its kind.
func (w *writer) value(v any) {
	switch v := v.(type) {
	case float64:
		w.float(2, v)
	case string:
		w.string(3, v)
	case bool:
		w.bool(4, v)
	case map[string]any:
		w.structure(5, v)
	case []any:
		list := w.begin(6)
		for _, item := range v {
			mark := w.begin(1)
			w.value(item)
			w.end(mark)
		}
		w.end(list)
	default:
		w.b = protowire.AppendVarint(protowire.AppendTag(w.b, 1, protowire.VarintType), 0) // null
	}
}

// textEntry, numberEntry and boolEntry append an entry of a
// google.protobuf.Struct.
func (w *writer) textEntry(name, text string) {
	outer, inner := w.entry(name)
	w.string(3, text)
	w.end(inner)
	w.end(outer)
}

func (w *writer) numberEntry(name string, n int64) {
	outer, inner := w.entry(name)
	w.float(2, float64(n))
	w.end(inner)
	w.end(outer)
}

func (w *writer) boolEntry(name string, v bool) {
	outer, inner := w.entry(name)
	w.bool(4, v)
	w.end(inner)
	w.end(outer)
}

// entry begins an entry and its value.
func (w *writer) entry(name string) (outer, inner int) {
	outer = w.begin(1)
	w.string(1, name)
	return outer, w.begin(2)
}
