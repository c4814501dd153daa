package policy

import "github.com/headgate/headgate"

// checkConsistency reports what is wrong with how the rule counts.
func (r *Rule) checkConsistency(bad func(field, format string, args ...any)) {
	if r.DenyCache > headgate.DenyCacheOff {
		bad("deny_cache", "deny_cache %v is unknown", r.DenyCache)
	}
	if r.Consistency > headgate.Async {
		bad("consistency", "consistency %v is unknown", r.Consistency)
		return
	}
	told := false
	r.eachLimits(func(_, _ string, limits *headgate.Rule) {
		for i := range limits.Limits() {
			if l := &limits.Limits()[i]; !told && !r.Consistency.Counts(l.Algorithm) {
				bad("consistency", "consistency is %s, but the store must be asked each time for the %s %q; make the rule strict, or give that limit a rule of its own",
					r.Consistency, l.Algorithm, l)
				told = true
			}
		}
	})
}
