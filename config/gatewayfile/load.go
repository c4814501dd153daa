package gatewayfile

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/shed"
)

// Knee is the limit that the load finds. The seed decides on what is random in it.
func (l *Load) Knee(seed uint64) adaptive.KneeConfig {
	return adaptive.KneeConfig{Initial: l.Initial, Min: l.Min, Max: l.Max, Ceiling: l.Ceiling, Seed: seed}
}

// Queued is the queue in front of that limit.
func (l *Load) Queued(name string) shed.Config {
	return shed.Config{Name: name, Queue: l.Queue, Interval: l.Wait}
}

// loads checks what bounds the requests that are with upstreams.
func (c *checker) loads(o *Settings) {
	has := make(map[string]bool)
	some := false
	for i := range o.Upstreams {
		u := &o.Upstreams[i]
		has[u.Name] = u.Load != nil
		if u.Load != nil {
			some = true
			c.load(fmt.Sprintf("upstreams[%d].load", i), u, o.Identity.Headers)
		}
	}
	if len(o.Pressure) > 0 && !some {
		c.bad("pressure", "there is pressure, but no upstream has a load that could shed requests by it")
	}
	for i := range o.Routes {
		r := &o.Routes[i]
		name := r.Upstream
		if name == "" && len(o.Upstreams) > 0 {
			name = o.Upstreams[0].Name
		}
		if with, known := has[name]; known && !with && (r.Load.Class != nil || r.Load.Exempt) {
			c.bad(fmt.Sprintf("routes[%d].load", i), "the route %q has a load, but its upstream %q has none that would be told", r.Pattern, name)
		}
	}
}

func (c *checker) load(field string, u *Upstream, headers map[string]string) {
	what := fmt.Sprintf("the load of the upstream %q", u.Name)
	_, wrongLimit := adaptive.NewKnee(u.Load.Knee(0))
	_, wrongQueue := shed.New(flow.Chain(), u.Load.Queued(u.Name))
	for _, err := range []error{wrongLimit, wrongQueue} {
		if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
			for _, text := range wrong.Problems.Texts() {
				c.bad(field, "%s: %s", what, text)
			}
		}
	}
	for _, entry := range []string{u.Load.Class, u.Load.Tenant} {
		if _, theirs := headers[entry]; theirs {
			c.bad(field, "%s looks at the entry %q, which any client can write, as it is one of identity.headers; take it from trusted_headers, a token or a certificate", what, entry)
		}
	}
}
