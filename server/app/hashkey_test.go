package app

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// TestRotation changes the hash key on one server after the other, as
// docs/operations.md has it: at no time is a client admitted more than its limit,
// and none starts afresh in the end.
func TestRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, "rules:\n  - {name: client, per: [api_key], limits: [10 per 1d]}\n")
	const before, after = "the old key, of many bytes", "the new key, of many bytes"
	load := func(key, old string) *policy.Set {
		t.Helper()
		set, err := LoadPolicy(file, key, old)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	for name, keys := range map[string][2]string{"key to key": {before, after}, "none to key": {"", after}} {
		old, mixed, fresh := load(keys[0], ""), load(keys[1], keys[0]), load(keys[1], "")
		if keys[0] == "" {
			mixed = load(keys[1], NoHashKey)
		}
		store := memory.New()
		take := func(set *policy.Set) bool {
			t.Helper()
			out, err := set.Decide(policy.Descriptor{{Name: "api_key", Value: "k1"}}, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			decisions, err := store.Take(t.Context(), headgate.OpTake, out.Checks, nil)
			if err != nil {
				t.Fatal(err)
			}
			return headgate.NewVerdict(decisions).Allowed
		}
		admitted := 0
		for step, nodes := range [][]*policy.Set{
			{old, old}, {old, mixed}, {mixed, old}, {mixed, mixed}, // the new key goes around
			{mixed, mixed}, {mixed, mixed}, {mixed, mixed}, {mixed, mixed}, // a period passes, and with it what was used before
			{mixed, mixed},
		} {
			for _, node := range nodes {
				if take(node) {
					admitted++
				}
			}
			if admitted > 10 {
				t.Fatalf("%s: %d admitted after step %d", name, admitted, step+1)
			}
		}
		if admitted != 10 {
			t.Errorf("%s: %d admitted, want 10", name, admitted)
		}
		// What was used under the old key alone is all that the new one does not know.
		left := 0
		for take(fresh) {
			left++
		}
		if left != 4 {
			t.Errorf("%s: %d are left under the new key, want the 4 that were counted under the old one only", name, left)
		}
	}
}

func TestHashKeyMistakes(t *testing.T) {
	long := strings.Repeat("k", 32)
	for want, keys := range map[string][2]string{
		"hash key: has 5 bytes, must have 16 to 1024":                             {"short", ""},
		`old hash key: has 5 bytes, must have 16 to 1024, or be "none" if there`:  {long, "short"},
		"old hash key: it is the hash key; leave it out, or give the new one as ": {long, long},
		"old hash key: it is the hash key; leave it out, or":                      {"", NoHashKey},
	} {
		_, err := LoadPolicy("", keys[0], keys[1])
		var settings *SettingsError
		if !errors.As(err, &settings) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") {
			t.Errorf("%q: %v", keys, err)
		}
		_, err = New(t.Context(), Settings{HashKey: keys[0], OldHashKey: keys[1]})
		if !errors.As(err, &settings) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", keys, err)
		}
	}
}

// TestMadeUpKey: hashes that were made without a key hold on a server that has made
// up a key for itself.
func TestMadeUpKey(t *testing.T) {
	plain, err := LoadPolicy("", "", "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, "deny: [{name: out, match: { api_key: { hash: "+plain.Hash("api_key", "k1")+" } }}]\nrules:\n  - {name: client, per: [api_key], limits: [10 per 1d]}\n")
	r := start(t, Settings{PolicyFile: file})
	for key, want := range map[string]string{"k1": `"denied_by":{"list":"out"}`, "k2": `"allowed":true`} {
		if _, body := r.do(t, "POST", "/v1/check", `{"descriptor":{"api_key":"`+key+`"}}`); !strings.Contains(body, want) {
			t.Errorf("%s: %s", key, body)
		}
	}
	if key := r.Policy().Hash; plain.Hash("api_key", "k1") == r.Policy().Set.Hash("api_key", "k1") {
		t.Errorf("the server of %s hashes without a key", key)
	}
}
