package layer

import (
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
)

// maxDerived bounds the number of rules that are remembered. Reloads leave rules behind that nobody
// uses any more, and some doors make rules from what their callers send. At the bound everything is
// forgotten, and made again for the rules in use.
const maxDerived = 4096

// Derived remembers what was derived from each rule. It is safe for concurrent use.
type Derived[T any] struct {
	derive func(*headgate.Rule) T
	size   atomic.Int64
	rules  sync.Map // *headgate.Rule → T
}

// NewDerived returns a Derived for the given function, which may be called more than once for a
// rule.
func NewDerived[T any](derive func(*headgate.Rule) T) *Derived[T] {
	return &Derived[T]{derive: derive}
}

// Of returns what was derived from a rule. Concurrent callers get the same.
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
