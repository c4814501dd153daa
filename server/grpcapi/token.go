package grpcapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc/metadata"
)

// token is a token that callers must send.
type token struct {
	set bool // A token is required.
	sum [sha256.Size]byte
}

func newToken(text string) token { return token{text != "", sha256.Sum256([]byte(text))} }

// shown reports whether the call has the token. The comparison takes constant time, so it reveals
// nothing about the token.
func (t *token) shown(ctx context.Context) bool {
	const scheme = "bearer "
	shown := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(shown) != 1 || len(shown[0]) <= len(scheme) || !strings.EqualFold(shown[0][:len(scheme)], scheme) {
		return false
	}
	sum := sha256.Sum256([]byte(shown[0][len(scheme):]))
	return subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}
