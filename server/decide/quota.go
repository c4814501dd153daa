package decide

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// quota reports whether a limit in quota mode binds the part, whether the part is beyond it, and
// how long it takes until the part fits again. A limit that is also in shadow mode binds, but is
// never exceeded.
func (p *Parts) quota(part *Part) (binds, beyond bool, wait time.Duration) {
	if part.Op == headgate.OpRefund {
		return false, false, 0
	}
	decisions := p.Decisions(part)
	for i := range decisions {
		d := &decisions[i]
		if !p.inQuota(part, d) {
			continue
		}
		binds = true
		if d.Allowed || part.Leaf != nil && part.Leaf.Shadow {
			continue
		}
		beyond = true
		if d.RetryAfter == headgate.Never || wait != headgate.Never && d.RetryAfter > wait {
			wait = d.RetryAfter
		}
	}
	return binds, beyond, wait
}

// inQuota reports whether the limit of a decision is in quota mode.
func (p *Parts) inQuota(part *Part, d *headgate.Decision) bool {
	if part.Leaf != nil {
		return part.Leaf.Quota
	}
	if part.Brought != nil {
		return false
	}
	r := p.Policy.Rule(d.Rule.Name())
	return r != nil && r.Mode == policy.ModeQuota
}

// spend turns the request away if all parts with a quota are beyond it, and reports whether it did.
// A request with several quotas may use any of them, as in envoyproxy/ratelimit, so it is denied
// only when none has anything left. The part with the shortest wait then denies.
func (p *Parts) spend(parts []Part) bool {
	var soonest *Part
	var least time.Duration
	left := false
	for i := range parts {
		part := &parts[i]
		binds, beyond, wait := p.quota(part)
		part.Beyond = beyond
		switch {
		case !binds:
		case !beyond:
			left = true
		case soonest == nil || wait != headgate.Never && (least == headgate.Never || wait < least):
			soonest, least = part, wait
		}
	}
	if soonest == nil || left {
		return false
	}
	soonest.spent = true
	decisions := p.Decisions(soonest)
	for i := range decisions {
		d := &decisions[i]
		if d.Allowed || !p.inQuota(soonest, d) {
			continue
		}
		for j := range p.Told {
			if p.Told[j] == *d {
				p.Told[j].Shadow = false
			}
		}
		d.Shadow = false
	}
	return true
}
