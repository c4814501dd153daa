package replay

import (
	"slices"
	"strconv"

	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/tune/accesslog"
)

// tokenEntries are the entries of a log that say what a call to a language model has used.
var tokenEntries = [...]string{"input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens"}

// UsageReader reads what calls to language models have used from a log. Make one with [NewUsageReader].
type UsageReader struct {
	tokens [len(tokenEntries)]int // the places of tokenEntries among the entries, or -1
	model  int                    // that of the model
}

// NewUsageReader returns a reader for requests with the given entries, those of accesslog.Log.Entries.
func NewUsageReader(entries []string) *UsageReader {
	u := &UsageReader{model: slices.Index(entries, "model")}
	for i, name := range tokenEntries {
		u.tokens[i] = slices.Index(entries, name)
	}
	return u
}

// Of returns what the request has used of a language model. It is nil if the log does not say it.
func (u *UsageReader) Of(r *accesslog.Request) *models.Usage {
	var n [len(tokenEntries)]int64
	said := false
	for i, place := range u.tokens {
		if place < 0 {
			continue
		}
		if value, err := strconv.ParseInt(r.Entry(place), 10, 64); err == nil && value >= 0 && value <= models.MaxTokens {
			n[i], said = value, true
		}
	}
	if !said {
		return nil
	}
	used := &models.Usage{Input: n[0], CachedInput: n[1], CacheWrite: n[2], Output: n[3]}
	if u.model >= 0 {
		used.Model = r.Entry(u.model)
	}
	return used
}
