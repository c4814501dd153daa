package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"sync"
)

// The bounds of the key given to [HashKey], in bytes.
const (
	MinHashKey = 16
	MaxHashKey = 1024
)

// secrets are the entries that are secret without being told so.
var secrets = []string{"api_key", "token", "authorization"}

// domain separates hashes without a key from every other use of SHA-256.
const domain = "headgate secret v1\x00"

// hashed is how many bytes of a hash are kept: enough that no two values ever
// meet by chance.
const hashed = 16

// hashLength is the length of a hash as a text.
var hashLength = base64.RawURLEncoding.EncodedLen(hashed)

// checkHash returns what is wrong with the text of a hash, or "".
func checkHash(text string) string {
	if len(text) == hashLength {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(text); err == nil {
			return ""
		}
	}
	return fmt.Sprintf("%s is no hash of a secret; it has %d letters, digits, - and _", Quote(text), hashLength)
}

// hasher turns secret values into what may stand in a key. Its states are pooled
// because making one for each request would allocate more than all the rest.
type hasher struct {
	keyed bool
	pool  sync.Pool
	// next is another key that hashes in the policy may be made with, or nil.
	next *hasher
}

type hashState struct {
	hash hash.Hash
	text []byte
	sum  []byte
}

func newHasher(key []byte) *hasher {
	h := &hasher{keyed: len(key) != 0}
	h.pool.New = func() any {
		if len(key) == 0 {
			return &hashState{hash: sha256.New()}
		}
		return &hashState{hash: hmac.New(sha256.New, key)}
	}
	return h
}

// append appends the hash of the entry's value. The entry's name is hashed too:
// the same text as a token and as an API key gives two hashes.
func (h *hasher) append(dst []byte, entry, value string) []byte {
	s, _ := h.pool.Get().(*hashState)
	s.text = s.text[:0]
	if !h.keyed {
		s.text = append(s.text, domain...)
	}
	s.text = append(append(append(s.text, entry...), 0), value...)
	s.hash.Reset()
	s.hash.Write(s.text)
	s.sum = s.hash.Sum(s.sum[:0])
	dst = base64.RawURLEncoding.AppendEncode(dst, s.sum[:hashed])
	// The secret does not outlive the call.
	clear(s.text)
	h.pool.Put(s)
	return dst
}

// shortened begins what stands for keys that are longer than a store takes. Text does
// not begin with it; a key that does is treated as if it were too long, so that nobody
// can write what stands for the key of another.
const shortened = '\x00'

// shorten returns what stands for the key.
func shorten(key []byte) string {
	sum := sha256.Sum256(key)
	return string(shortened) + base64.RawURLEncoding.EncodeToString(sum[:])
}
