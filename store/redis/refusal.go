package redis

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// refusal is the server's error reply that err is or wraps, or "". Redis sends errors as
// text and has no other code than the first words, so that this package has to read
// them: here, and nowhere else.
func refusal(err error) string {
	if err == nil {
		return "" // before anything is allocated
	}
	var refused *rueidis.RedisError
	if !errors.As(err, &refused) {
		return ""
	}
	return refused.Error()
}

// replies reports whether err is or wraps an error reply that begins with one of the
// codes, such as READONLY.
func replies(err error, codes ...string) bool {
	text := refusal(err)
	return slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(text, code) })
}
