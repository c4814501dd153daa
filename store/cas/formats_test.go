package cas

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func sampleNote() *note {
	zone, _ := headgate.LoadLocation("Europe/Berlin")
	limits := []headgate.Limit{headgate.PerSecond(100).WithBurst(300), {Algorithm: headgate.FixedWindow, Count: 70_000, Align: headgate.AlignDay, Location: zone}}
	rule, err := headgate.MustRule("orders", limits...).WithTag("tenant")
	if err != nil {
		panic(err)
	}
	checks := []headgate.Check{
		{Rule: rule, Key: "k1", Cost: 300, Factor: 7, GiveBack: true, Hints: headgate.Hints{OnError: headgate.OnErrorLocal, Consistency: headgate.Leased, DenyCache: headgate.DenyCacheOn}},
		{Rule: headgate.MustRule("all", headgate.Sliding(10, time.Minute)), Shadow: true},
	}
	decisions := []headgate.Decision{
		{Allowed: true, Remaining: 5, ResetAfter: 3 * time.Second, At: 1_750_000_000_000_000},
		{Allowed: true, Remaining: 69_700, ResetAfter: time.Hour, Delay: time.Millisecond},
		{Allowed: false, RetryAfter: headgate.Never, Check: 1, Shadow: true},
	}
	return newNote(&headgate.Terms{ID: "id", For: 2 * time.Minute}, true, true, checks, decisions)
}

// TestFormats: values are written as version 1 of the program wrote them, byte for byte, and what is
// read from them is what was written.
func TestFormats(t *testing.T) {
	settled := sampleNote()
	settled.finished, settled.chosen, settled.units, settled.settled, settled.settledAt = true, false, []int64{3, 0}, settled.answers[:2], settled.at+5
	book := &store.Book{
		Epoch:  1_750_000_000_000_001,
		Leases: []store.Held{{Holder: "h", Until: 1_750_000_000_000_900, TTL: 900, Epoch: 1_750_000_000_000_001, Revoked: true, Slots: []int{0, 200}}},
		Line:   []store.Place{{Holder: "w", Until: 1_750_000_000_000_700, TTL: 700, Cost: 2, Passed: 1}},
	}
	read := new(store.Book)
	for name, c := range map[string]struct {
		write, read func(*codec)
		want        string
	}{
		"note":    {sampleNote().code, new(note).code, "010380b8b87280b893f8b4e79b068080db85b4e79b0602066f72646572730674656e616e74026b31ac020701030101022502000064ac028094ebdc030000000204f0a204000000000d4575726f70652f4265726c696e03616c6c0000010002000000010e0103000a0080b09dc2df0100000003010500809bee020001c4a0040080909de91ad00f0200000000"},
		"settled": {settled.code, new(note).code, "011f80b8b87280b893f8b4e79b068080db85b4e79b0602066f72646572730674656e616e74026b31ac020701030101022502000064ac028094ebdc030000000204f0a204000000000d4575726f70652f4265726c696e03616c6c0000010002000000010e0103000a0080b09dc2df0100000003010500809bee020001c4a0040080909de91ad00f02000000008a80db85b4e79b0602030002010500809bee020001c4a0040080909de91ad00f"},
		"book":    {func(c *codec) { codeBook(c, book) }, func(c *codec) { codeBook(c, read) }, "018280db85b4e79b06010168888edb85b4e79b0684078280db85b4e79b06010200c801010177f88adb85b4e79b06bc050201"},
		"members": {(&members{since: 1_750_000_000_000_000, nodes: []member{{"n1", 1_750_000_000_009_000}, {"n2", 1_750_000_000_009_001}}}).code, new(members).code, "018080db85b4e79b0602026e31d08cdc85b4e79b06026e32d28cdc85b4e79b06"},
	} {
		got := encode(c.write)
		if hex.EncodeToString(got) != c.want {
			t.Errorf("%s: wrote %x, want %s", name, got, c.want)
		}
		if err := decode(got, c.read); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := encode(c.read); !bytes.Equal(again, got) {
			t.Errorf("%s: read and written again as %x, want %x", name, again, got)
		}
		for n := range got {
			if decode(got[:n], c.read) == nil {
				t.Errorf("%s: %d of its %d bytes were read without an error", name, n, len(got))
			}
		}
	}
}
