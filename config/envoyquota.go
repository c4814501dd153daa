package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
)

const (
	// bootstrapDepth is how deeply values stand in each other in a configuration of Envoy.
	bootstrapDepth = 64
	// quotaReports is how often an Envoy has to report at least, so that its shares are renewed in time.
	quotaReports = 5 * time.Second
	quotaBucket  = "rate_limit_quota.v3.RateLimitQuotaBucketSettings"
	denyAll      = "DENY_ALL"
)

// EnvoyQuota returns warnings about the buckets of the rate limit quota service in a configuration of
// Envoy, such as a bootstrap: what lets requests pass without a share. It is false if the text is no
// such configuration. The name stands for the file in warnings.
func EnvoyQuota(name string, data []byte) (warnings []lint.Warning, is bool) {
	root := parse(new(mistakes), data, bootstrapDepth)
	if root == nil {
		return nil, false
	}
	l := quotaLinter{file: name}
	l.walk(root)
	return l.warnings, l.found || root.has("static_resources") || root.has("dynamic_resources")
}

type quotaLinter struct {
	file     string
	found    bool
	warnings []lint.Warning
}

func (l *quotaLinter) walk(n *node) {
	if kind, ok := n.field("@type"); ok && strings.HasSuffix(kind.text, quotaBucket) {
		l.found = true
		l.bucket(n)
	}
	for _, item := range n.items {
		l.walk(item)
	}
	for _, f := range n.fields {
		l.walk(f.value)
	}
}

func (l *quotaLinter) warn(at *node, code, format string, args ...any) {
	l.warnings = append(l.warnings, lint.Warning{Code: code, Pos: policy.Position{File: l.file, Line: at.at.line, Column: at.at.column}, Text: fmt.Sprintf(format, args...)})
}

// bucket looks at the settings of a bucket.
func (l *quotaLinter) bucket(n *node) {
	for _, of := range []struct{ field, when string }{
		{"no_assignment_behavior", "before the Envoy has a share"},
		{"expired_assignment_behavior", "when the share of the Envoy has ended"},
	} {
		behavior, ok := envoyField(n, of.field)
		if !ok {
			l.warn(n, lint.OpenQuota, "the bucket has no %s, so requests may pass %s; add %s: { fallback_rate_limit: { blanket_rule: %s } }", of.field, of.when, of.field, denyAll)
			continue
		}
		fallback, _ := envoyField(behavior, "fallback_rate_limit")
		if rule, _ := envoyField(fallback, "blanket_rule"); rule == nil || rule.text != denyAll {
			l.warn(behavior, lint.OpenQuota, "requests pass %s; write fallback_rate_limit: { blanket_rule: %s }", of.when, denyAll)
		}
	}
	if n, ok := envoyField(n, "reporting_interval"); ok {
		if every, err := time.ParseDuration(n.text); err == nil && every > quotaReports {
			l.warn(n, lint.RareReports, "the Envoy may report each %v, and what it is assigned is to be renewed each %v; write %v", every, quotaReports, quotaReports)
		}
	}
}

// envoyField returns a field by its name, or by that which it has in JSON; nil if there is none.
func envoyField(n *node, name string) (*node, bool) {
	if n == nil {
		return nil, false
	}
	if v, ok := n.field(name); ok {
		return v, true
	}
	words := strings.Split(name, "_")
	for i := range words[1:] {
		words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
	}
	return n.field(strings.Join(words, ""))
}
