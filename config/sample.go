package config

import _ "embed"

//go:embed sample.yml
var sample string

// Sample returns the policy file that "headgate serve" uses when it is given
// none.
func Sample() []byte { return []byte(sample) }
