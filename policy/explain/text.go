package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
)

// String writes the explanation for people: what is known of the request, what
// binds it with key and limits, and what does not and why.
func (e *Explanation) String() string {
	var b strings.Builder
	b.WriteString("the request has")
	if len(e.Entries) == 0 {
		b.WriteString(" no entries")
	}
	for i := range e.Entries {
		fmt.Fprintf(&b, "\n  %s", e.Entries[i].text())
	}
	fmt.Fprintf(&b, "\nand costs %d\n", e.Cost)
	for i := range e.Steps {
		fmt.Fprintf(&b, "%s", e.stepText(i))
	}
	if e.Denied != nil && len(e.Steps) == 0 {
		fmt.Fprintf(&b, "\ndenied by the entry %q of the deny list%s\n", e.Denied.Name, at(e.Denied.Pos))
	}
	if e.Allowed != nil && len(e.Steps) == 0 {
		fmt.Fprintf(&b, "\nallowed by the entry %q of the allow list%s: no rule binds it\n", e.Allowed.Name, at(e.Allowed.Pos))
	}
	var bound, others int
	for i := range e.Rules {
		if e.Rules[i].Binds {
			bound++
			fmt.Fprintf(&b, "\n%s", e.Rules[i].text())
		}
	}
	if bound == 0 && e.Denied == nil && e.Allowed == nil && e.Error == "" {
		b.WriteString("\nno rule binds it\n")
	}
	for i := range e.Rules {
		if r := &e.Rules[i]; !r.Binds && (len(e.Steps) > 0 || e.Denied == nil && e.Allowed == nil) {
			if others++; others == 1 {
				b.WriteString("\ndo not bind it\n")
			}
			fmt.Fprintf(&b, "  %s: %s\n", r.Rule, r.Why)
		}
	}
	if v := e.Verdict; v != nil {
		b.WriteString("\n" + v.text() + "\n")
	}
	if o := e.WithoutStore; o != nil {
		b.WriteString("while the store does not answer: " + o.text() + "\n")
	}
	if e.Error != "" {
		fmt.Fprintf(&b, "\ncannot be decided: %s\n", e.Error)
	}
	return b.String()
}

// stepText is one step, and what comes before the first one.
func (e *Explanation) stepText(i int) string {
	s, text := &e.Steps[i], ""
	if i == 0 {
		text = "\nlooked up entry by entry\n"
	}
	text += fmt.Sprintf("  %d. %s: ", i+1, s.Entry)
	switch s.By {
	case "":
		return text + "leads nowhere\n"
	case "key":
		text += "any value leads to "
	case "star":
		text += "a star leads to "
	default:
		text += "the value leads to "
	}
	return text + s.Node + at(s.Pos) + "\n"
}

func (o *Outage) text() string {
	var does string
	switch o.OnError {
	case "":
		return fmt.Sprintf("what --on-store-error says, because rule %q does not say it (by default headgate serve denies, headgate gateway counts its share, middleware lets in)", o.Rule)
	case "deny":
		does = "no decision (503)"
	case "local":
		does = "each server counts it, up to its share of the limits"
	default:
		does = "let in, and not counted"
	}
	switch {
	case o.Rule == "":
		return does + ", because no rule that binds it may deny"
	case o.Default:
		return fmt.Sprintf("%s, as --on-store-error says: rule %q leaves it open", does, o.Rule)
	}
	return fmt.Sprintf("%s, by rule %q", does, o.Rule)
}

func at(p policy.Position) string {
	if p == (policy.Position{}) {
		return ""
	}
	return fmt.Sprintf(" (%v)", p)
}

func (e *Entry) text() string {
	text := fmt.Sprintf("%s = %s", e.Name, policy.Quote(e.Value))
	if e.Secret {
		text = fmt.Sprintf("%s = (secret, %s%s)", e.Name, policy.HashMark, e.Value)
	}
	switch {
	case e.Replaced:
		text += ", by the table of subjects, instead of what the request says"
	case e.Known:
		text += ", by the table of subjects"
	}
	switch {
	case e.Meant != "":
		text += fmt.Sprintf(" (no rule or list looks at it; did you mean %q?)", e.Meant)
	case e.Unused:
		text += " (no rule or list looks at it)"
	}
	return text
}

func (r *Rule) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule %q binds it%s\n", r.Rule, at(r.Pos))
	switch {
	case r.Admits != "":
		fmt.Fprintf(&b, "  admits %s, and counts nothing", r.Admits)
	case r.Key == "" && len(r.Limits) == 0:
		b.WriteString("  permits for all")
	case r.Key == "":
		b.WriteString("  one counter for all")
	case r.OldHashKey:
		fmt.Fprintf(&b, "  key %q (hashed with the old hash key)", r.Key)
	case r.Hashed:
		fmt.Fprintf(&b, "  key %q (hashed)", r.Key)
	default:
		fmt.Fprintf(&b, "  key %q", r.Key)
	}
	if r.Admits == "" {
		fmt.Fprintf(&b, ", cost %d", r.Cost)
	}
	b.WriteString("\n")
	switch {
	case r.Override > 0:
		fmt.Fprintf(&b, "  limits of override %d\n", r.Override)
	case r.Tier == "*":
		b.WriteString("  limits of all other tiers\n")
	case r.Tier != "":
		fmt.Fprintf(&b, "  limits of the tier %q\n", r.Tier)
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		fmt.Fprintf(&b, "  %s (%s)", l.Limit, l.Algorithm)
		if l.State != nil {
			b.WriteString(": " + l.State.text())
		}
		b.WriteString("\n")
	}
	if r.InProgress != nil {
		b.WriteString("  " + r.InProgress.text() + "\n")
	}
	if r.Soft > 0 {
		fmt.Fprintf(&b, "  warns from %d%% on\n", r.Soft)
	}
	for _, line := range []struct{ what, value string }{
		{"gives back what ends with", r.GiveBackOn}, {"charges only what ends with", r.ChargeOn}, {"reservations that nobody settles", r.Abandoned},
	} {
		if line.value != "" {
			fmt.Fprintf(&b, "  %s: %s\n", line.what, line.value)
		}
	}
	if len(r.Replaces) > 0 {
		fmt.Fprintf(&b, "  replaces: %s\n", strings.Join(r.Replaces, ", "))
	}
	if r.LimitName != "" {
		fmt.Fprintf(&b, "  replaced by what replaces %q\n", r.LimitName)
	}
	if r.OnError != "" {
		fmt.Fprintf(&b, "  while the store does not answer: %s\n", r.OnError)
	}
	if r.Consistency != "" {
		fmt.Fprintf(&b, "  counted: %s\n", r.Consistency)
	}
	if r.Scope != "" {
		b.WriteString("  global: this region enforces its share of the limits\n")
	}
	if r.DenyCache != "" {
		fmt.Fprintf(&b, "  denials are remembered: %s\n", map[string]string{"on": "yes", "off": "no"}[r.DenyCache])
	}
	switch {
	case r.Admits == "everything": // whatever its mode
	case r.Admits != "" && r.Quota:
		b.WriteString("  in quota mode: denies nobody, and tells callers that it would have\n")
	case r.Admits != "" && r.Shadow:
		b.WriteString("  in shadow: denies nobody\n")
	case r.Quota:
		b.WriteString("  in quota mode: counts and never denies, and tells callers when it would have\n")
	case r.Shadow && r.Enforce == 0:
		b.WriteString("  in shadow: counts and never denies\n")
	case r.Shadow:
		fmt.Fprintf(&b, "  in shadow for this key: enforced for %d%% of all\n", r.Enforce)
	case r.Enforce < 100:
		fmt.Fprintf(&b, "  enforced for this key, and %d%% of all\n", r.Enforce)
	}
	return b.String()
}

func (p *InProgress) text() string {
	text := fmt.Sprintf("%d in progress in each process", p.Limit)
	if p.Shared {
		text = fmt.Sprintf("%d in progress over all processes, freed %v after one has died", p.Limit, millis(p.TTL))
	}
	if p.Wait > 0 {
		return text + fmt.Sprintf("; up to %d requests wait for up to %v", p.Queue, millis(p.Wait))
	}
	return text + "; what is beyond is refused at once"
}

func (d *Decision) text() string {
	text := fmt.Sprintf("%d left, nothing used", d.Remaining)
	if d.ResetAfter > 0 {
		text = fmt.Sprintf("%d left, all free again in %v", d.Remaining, millis(d.ResetAfter))
	}
	switch {
	case d.Allowed && d.Soft:
		text += ", and callers are warned"
	case d.Allowed:
	case d.RetryAfter < 0:
		text += ", can never hold the cost"
	default:
		text += fmt.Sprintf(", denies for another %v", millis(d.RetryAfter))
	}
	if d.Source != "" {
		text += ", says " + d.Source
	}
	return text
}

// millis writes milliseconds for people, such as "1h2m3.4s".
func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func (v *Verdict) text() string {
	word := "denied"
	if v.Allowed {
		word = "allowed"
	}
	if v.Rule == "" {
		return word
	}
	return fmt.Sprintf("%s; rule %q, limit %q decides", word, v.Rule, v.Limit)
}
