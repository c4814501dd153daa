package app

import (
	"fmt"

	"github.com/headgate/headgate/policy"
)

// NoHashKey is the value of [Settings.OldHashKey] which says that secrets were hashed without a
// key.
const NoHashKey = "none"

// policyOptions are the options with which every policy file is read.
func (s *Settings) policyOptions() []policy.Option {
	var options []policy.Option
	if s.HashKey != "" {
		options = append(options, policy.HashKey([]byte(s.HashKey)))
	}
	switch s.OldHashKey {
	case "":
	case NoHashKey:
		options = append(options, policy.OldHashKey(nil))
	default:
		options = append(options, policy.OldHashKey([]byte(s.OldHashKey)))
	}
	if s.madeUpKey {
		options = append(options, policy.UnkeyedHashes())
	}
	if s.clock != nil {
		options = append(options, policy.Clock(s.clock.Now))
	}
	return options
}

// checkHashKeys returns what is wrong with the hash keys. It does not repeat them.
func checkHashKeys(key, old string) []string {
	var problems []string
	if n := len(key); n != 0 && (n < policy.MinHashKey || n > policy.MaxHashKey) {
		problems = append(problems, fmt.Sprintf("hash key: has %d bytes, must have %d to %d", n, policy.MinHashKey, policy.MaxHashKey))
	}
	if n := len(old); n != 0 && old != NoHashKey && (n < policy.MinHashKey || n > policy.MaxHashKey) {
		problems = append(problems, fmt.Sprintf("old hash key: has %d bytes, must have %d to %d, or be %q if there was none", n, policy.MinHashKey, policy.MaxHashKey, NoHashKey))
	}
	if old != "" && (old == key || old == NoHashKey && key == "") {
		problems = append(problems, "old hash key: it is the hash key; leave it out, or give the new one as the hash key")
	}
	return problems
}
