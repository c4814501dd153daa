package doctor

import (
	"strings"
)

// sampled counts the keys of one rule in the sample, those of them that were measured, and the
// bytes of the latter.
type sampled struct{ keys, measured, bytes int64 }

// sample counts keys by rule, and asks the server for the memory of some of them.
func (p *patient) sample(rules map[string]*sampled) {
	if p.info["role"] == "slave" {
		return // it has the keys of its primary, which are counted there
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

// globEscape returns a pattern that matches s and nothing else.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
