package redis

import "testing"

func TestSlotOf(t *testing.T) {
	// What CLUSTER KEYSLOT answers.
	tests := []struct {
		key  string
		want uint16
	}{
		{"", 0},
		{"123456789", 0x31c3},
		{"foo", 12182},
		{"{foo}", 12182},
		{"a{foo}b{bar}", 12182},
		{"foo{}{bar}", 8363},
		{"foo{{bar}}zap", 4015},
		{"hg:rule k", 15588},
	}
	for _, test := range tests {
		if got := slotOf(test.key); got != test.want {
			t.Errorf("%q is in slot %d, want %d", test.key, got, test.want)
		}
	}
	if slotOf("foo{}{bar}") == slotOf("bar") || slotOf("{}x") == slotOf("x") || slotOf("{x") == slotOf("x") {
		t.Error("an empty or unclosed tag counts as one")
	}
}

func TestTagOf(t *testing.T) {
	seen := make(map[string]bool, hashSlots)
	for slot := range uint16(hashSlots) {
		tag := tagOf(slot)
		seen[tag] = true
		if got := slotOf("hg:{" + tag + "} anything"); got != slot {
			t.Fatalf("%q is in slot %d, want %d", tag, got, slot)
		}
		for _, c := range tag {
			if c < '@' || c > 'O' {
				t.Fatalf("the tag of slot %d is %q, must have letters from @ to O", slot, tag)
			}
		}
	}
	if len(seen) != hashSlots {
		t.Errorf("there are %d tags for %d slots", len(seen), hashSlots)
	}
}
