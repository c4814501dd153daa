package grpclimit

import (
	"github.com/headgate/headgate/internal/bindings"
	"github.com/headgate/headgate/policy"
)

// compiled is bindings as a policy of their own, so that their keys are made in one
// place.
type compiled struct {
	bindings []binding
	set      *policy.Set
}

// compiler works out what options mean, for a server or a client.
type compiler struct {
	*bindings.Compiler[*reader, *Call]
}

// newCompiler returns a compiler for calls that have the known facts.
func newCompiler(s *settings, known []*fact) compiler {
	return compiler{bindings.New(bindings.Options[*reader, *Call]{
		Set: s.set, Facts: s.facts, Known: known, Address: factIP, IPv6Bits: s.ipv6Bits, Described: s.describe != nil,
		HashKey: s.hashKey, OldHashKey: s.oldHashKey, OldHashes: s.oldHashes, Bad: s.bad,
	})}
}

// compile turns bindings, which the option of that name has made, into a policy.
func (c compiler) compile(option string, all []binding) compiled {
	return compiled{all, c.Compile(option, all)}
}
