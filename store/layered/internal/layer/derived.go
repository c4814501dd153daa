package layer

import (
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
)

// maxDerived bounds the rules that something is remembered of. Policies that are reloaded
// leave rules behind that nobody asks about any more, and some doors make rules of what their
// callers say. Beyond the bound everything is forgotten, and made again for rules in use.
const maxDerived = 4096

// Derived remembers what was made of each rule. It is safe for concurrent use.
type Derived[T any] struct {
	derive func(*headgate.Rule) T
	size   atomic.Int64
	rules  sync.Map // *headgate.Rule → T
}

// NewDerived returns a memory of what derive makes of rules. It may be called more than once
// for a rule.
func NewDerived[T any](derive func(*headgate.Rule) T) *Derived[T] {
	return &Derived[T]{derive: derive}
}

// Of returns what was made of a rule, the same to all who ask at the same time.
func (d *Derived[T]) Of(rule *headgate.Rule) T {
	made, known := d.rules.Load(rule)
	if !known {
		one := d.derive(rule)
		if d.size.Add(1) > maxDerived {
			d.rules.Clear()
			d.size.Store(1)
		}
		made, _ = d.rules.LoadOrStore(rule, one)
	}
	is, _ := made.(T)
	return is
}
