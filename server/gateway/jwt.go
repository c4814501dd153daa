package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	// Unlike the standard library's, this package distinguishes exp from EXP, and refuses duplicate
	// names.
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate/headgate/config/gatewayfile"
)

// maxToken bounds the size of a token that is parsed. maxVerified is how many verified tokens each
// of the two generations of a cache remembers.
const (
	maxToken    = 8 << 10
	maxVerified = 10_000
)

// tokens verifies tokens. It is safe for concurrent use.
type tokens struct {
	gatewayfile.JWT
	keys       *keys
	algorithms []jose.SignatureAlgorithm
	claims     []string // in the order of claimNames
	now        func() time.Time

	// users counts the versions of the options that use these tokens. The gateway's lock guards it.
	users   int
	reading task
}

// token is a token that was verified. It is immutable.
type token struct {
	values    []string // of the claims; "" where the token has none
	from, end time.Time
}

func newTokens(ctx context.Context, o *Options) (*tokens, error) {
	j := o.Identity.JWT
	if j == nil {
		return nil, nil
	}
	t := &tokens{JWT: *j, now: time.Now}
	for _, name := range j.Algorithms {
		t.algorithms = append(t.algorithms, jose.SignatureAlgorithm(name))
	}
	for _, name := range claimNames(j) {
		t.claims = append(t.claims, j.Claims[name])
	}
	var err error
	t.keys, err = newKeys(ctx, j, o.Logger)
	return t, err
}

// with returns t if it can be used for these options, so that keys and verified tokens are kept.
// Otherwise it returns nil.
func (t *tokens) with(j *gatewayfile.JWT) *tokens {
	if t == nil || j == nil || !reflect.DeepEqual(&t.JWT, j) {
		return nil
	}
	return t
}

// use keeps the keys up to date until all users have released the tokens. For nil tokens, it does
// nothing.
func (t *tokens) use() {
	if t == nil {
		return
	}
	if t.users++; t.users == 1 {
		t.reading.run(t.keys.run)
	}
}

func (t *tokens) release() {
	if t == nil {
		return
	}
	if t.users--; t.users == 0 {
		t.reading.end()
	}
}

// drop is for tokens that were perhaps never used.
func (t *tokens) drop() {
	if t != nil && t.users == 0 {
		t.keys.close()
	}
}

// The reasons for which a token is not accepted. What a client is told names no part of the token.
var (
	errNoToken  = errors.New("the request has no token")
	errBadToken = errors.New("the token is not valid")
	errExpired  = errors.New("the token has expired")
	errNotYet   = errors.New("the token is not valid yet")
)

// of returns the token that a text is. If there is none and none is required, it returns nil
// without an error.
func (t *tokens) of(ctx context.Context, text string) (*token, error) {
	// A text that is no JWS may be a credential of another kind, about which the gateway cannot
	// decide.
	if text == "" || !t.Required && strings.Count(text, ".") != 2 {
		if t.Required {
			return nil, errNoToken
		}
		return nil, nil
	}
	if len(text) > maxToken {
		return nil, errBadToken
	}
	sum := sha256.Sum256([]byte(text))
	// If the key set is replaced meanwhile, its cache goes with it.
	set := t.keys.set()
	found := set.verified.get(sum)
	if found == nil {
		var err error
		if found, err = t.verify(ctx, text); err != nil {
			return nil, err
		}
		set.verified.put(sum, found)
	}
	now := t.now()
	switch {
	case now.After(found.end.Add(t.Leeway)):
		return nil, errExpired
	case now.Before(found.from.Add(-t.Leeway)):
		return nil, errNotYet
	}
	return found, nil
}

// verify checks the signature, the issuer, the audience and the times of a token.
func (t *tokens) verify(ctx context.Context, text string) (*token, error) {
	signed, err := jose.ParseSignedCompact(text, t.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errBadToken
	}
	header := signed.Signatures[0].Protected
	for _, key := range t.keys.lookup(ctx, header.KeyID, header.Algorithm) {
		payload, err := signed.Verify(key.Key)
		if err == nil {
			return t.read(payload)
		}
	}
	return nil, errBadToken
}

// read reads the claims of a token.
func (t *tokens) read(payload []byte) (*token, error) {
	var known jwt.Claims
	var all map[string]json.RawMessage
	if json.Unmarshal(payload, &known) != nil || json.Unmarshal(payload, &all) != nil {
		return nil, errBadToken
	}
	switch {
	case known.Expiry == nil:
		return nil, fmt.Errorf("%w: it has no end", errBadToken)
	case t.Issuer != "" && known.Issuer != t.Issuer:
		return nil, fmt.Errorf("%w: it has another issuer", errBadToken)
	case t.Audience != "" && !known.Audience.Contains(t.Audience):
		return nil, fmt.Errorf("%w: it is for somebody else", errBadToken)
	}
	found := &token{values: make([]string, len(t.claims)), end: known.Expiry.Time(), from: known.NotBefore.Time()}
	for i, name := range t.claims {
		found.values[i] = claimText(all[name])
	}
	return found, nil
}

// claimText returns a claim as the value of an entry. Texts, numbers, true and false are kept as
// they are written. All else becomes "".
func claimText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	case '{', '[', 'n':
		return ""
	}
	return string(raw)
}

// cache remembers verified tokens, because checking a signature costs as much as forwarding a
// request. It keeps two generations, and drops the older one when the younger one is full. The zero
// cache is empty. A cache is safe for concurrent use.
type cache struct {
	mu     sync.Mutex // guards what follows
	young  map[[sha256.Size]byte]*token
	former map[[sha256.Size]byte]*token
}

func (c *cache) get(sum [sha256.Size]byte) *token {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.young[sum]; t != nil {
		return t
	}
	t := c.former[sum]
	if t != nil {
		c.add(sum, t)
	}
	return t
}

func (c *cache) put(sum [sha256.Size]byte, t *token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(sum, t)
}

func (c *cache) add(sum [sha256.Size]byte, t *token) {
	if c.young == nil || len(c.young) >= maxVerified {
		c.former, c.young = c.young, make(map[[sha256.Size]byte]*token)
	}
	c.young[sum] = t
}
