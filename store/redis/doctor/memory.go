package doctor

import (
	"strings"
)

// sampled is what was seen of one rule.
type sampled struct{ keys, measured, bytes int64 }

// sample counts keys by rule, and measures some of them.
func (p *patient) sample(rules map[string]*sampled) {
	if p.info["role"] == "slave" {
		return // the same keys as its primary's
	}
	cursor, seen := uint64(0), 0
	for range scans {
		if seen >= sampleKeys {
			return
		}
		page, err := p.client.Do(p.ctx, p.client.B().Scan().Cursor(cursor).Match(globEscape(p.prefix)+"*").Count(scanCount).Build()).AsScanEntry()
		if err != nil {
			p.add("memory", Doubtful, "keys cannot be sampled: %v", err).Fix = "let the doctor's user run SCAN"
			return
		}
		for _, key := range page.Elements {
			name, _, ok := strings.Cut(strings.TrimPrefix(key, p.prefix), " ")
			if !ok || name == "" {
				continue // not a counter
			}
			if open := strings.IndexByte(name, '{'); open >= 0 {
				name = name[:open]
			}
			seen++
			r := rules[name]
			if r == nil {
				r = new(sampled)
				rules[name] = r
			}
			if r.keys++; r.keys > measuredKeys {
				continue
			}
			if n, err := p.client.Do(p.ctx, p.client.B().MemoryUsage().Key(key).Build()).AsInt64(); err == nil {
				r.measured, r.bytes = r.measured+1, r.bytes+n
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return
		}
	}
}

// globEscape has a text stand for itself in a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
