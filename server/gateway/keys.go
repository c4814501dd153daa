package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/headgate/headgate/config/gatewayfile"
)

// The bounds of a key set, from whatever source.
const (
	maxKeySet     = 256 << 10
	maxKeys       = 100
	leastRSA      = 2048 // bits
	mostRSA       = 8192
	fetchWithin   = 5 * time.Second
	lookAtFile    = 5 * time.Second
	maxRedirects  = 3
	askAgainAfter = 30 * time.Second
	// keysLast is how long keys stay valid if they cannot be fetched again.
	keysLast = 24 * time.Hour
)

// keySet is the result of one reading of the source, with the tokens that were verified by these
// keys. When a key is removed, tokens are verified anew.
type keySet struct {
	keys     []jose.JSONWebKey
	verified *cache
}

// find returns the keys that may have signed a token with the given kid and algorithm. For a token
// without a kid, the set must have only one key.
func (s *keySet) find(kid, algorithm string) []jose.JSONWebKey {
	var found []jose.JSONWebKey
	for _, k := range s.keys {
		if (k.KeyID == kid || kid == "" && len(s.keys) == 1) && (k.Algorithm == "" || k.Algorithm == algorithm) {
			found = append(found, k)
		}
	}
	return found
}

// keys are the keys with which tokens are verified. They come from a file or a URL that is read
// again regularly. They are safe for concurrent use; run owns them.
//
// go-jose reads and uses the keys, but does not fetch them. MicahParks/jwkset (v0.11.4) does, and was
// looked at: it reads an answer of any size, refuses a whole set because of one bad key, fetches once
// for each caller who waits for an unknown key, trusts old keys for ever, and reads no files.
type keys struct {
	source string
	url    bool
	every  time.Duration
	client *http.Client
	logger *slog.Logger

	current atomic.Pointer[keySet]
	fetched atomic.Int64 // when the source was last read successfully, in nanoseconds since 1970
	failed  atomic.Bool  // the last reading failed

	asked   chan struct{} // receives a value when an unknown key is needed
	mu      sync.Mutex    // guards what follows
	done    chan struct{} // closed when the next reading has ended
	last    time.Time     // when the source was last read because of an unknown key
	awaited chan struct{} // closed when that reading has ended
	text    string        // what the source held; only look touches it
}

// newKeys reads the keys for the first time.
func newKeys(ctx context.Context, j *gatewayfile.JWT, logger *slog.Logger) (*keys, error) {
	k := &keys{source: j.Keys, every: lookAtFile, logger: logger, asked: make(chan struct{}, 1), done: make(chan struct{})}
	if strings.HasPrefix(j.Keys, "http://") || strings.HasPrefix(j.Keys, "https://") {
		k.url, k.every = true, j.Refresh
		if u, err := url.Parse(j.Keys); err != nil || u.Host == "" {
			return nil, fmt.Errorf("the URL of the keys cannot be read")
		}
		// It has a transport of its own, so that all its connections can be closed.
		k.client = &http.Client{
			Timeout: fetchWithin,
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: fetchWithin, IdleConnTimeout: fetchWithin,
				ResponseHeaderTimeout: fetchWithin, MaxResponseHeaderBytes: maxResponseHeader,
			},
			CheckRedirect: func(r *http.Request, via []*http.Request) error {
				if len(via) > maxRedirects || via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
					return errors.New("it redirects too often, or to a URL without TLS")
				}
				return nil
			},
		}
		if strings.HasPrefix(j.Keys, "http://") {
			logger.WarnContext(ctx, "keys are fetched without TLS: whoever is on the way can exchange them")
		}
	}
	if err := k.look(ctx); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// run reads the source regularly until ctx ends.
func (k *keys) run(ctx context.Context) {
	defer k.close()
	ticker := time.NewTicker(k.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-k.asked:
		}
		k.mu.Lock()
		done := k.done
		k.done = make(chan struct{})
		k.mu.Unlock()
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			k.failed.Store(true)
			k.logger.ErrorContext(ctx, "the keys of tokens could not be read; those there are stay", slog.Any("error", err), slog.Duration("for", keysLast))
		}
		close(done)
	}
}

func (k *keys) close() {
	if k.client != nil {
		k.client.CloseIdleConnections()
	}
}

// lookup returns the keys that may have signed a token. If there are none, it reads the source
// again, once for all callers that wait for the answer. It does not if that was done a short while
// ago: keys change rarely, and anybody can make a token with an unknown key.
func (k *keys) lookup(ctx context.Context, kid, algorithm string) []jose.JSONWebKey {
	if found := k.set().find(kid, algorithm); len(found) > 0 {
		return found
	}
	k.mu.Lock()
	if now := time.Now(); now.Sub(k.last) >= askAgainAfter {
		k.last, k.awaited = now, k.done
		select {
		case k.asked <- struct{}{}:
		default:
		}
	}
	done := k.awaited
	k.mu.Unlock()
	within := time.NewTimer(fetchWithin)
	defer within.Stop()
	select {
	case <-done:
	case <-within.C:
	case <-ctx.Done():
	}
	return k.set().find(kid, algorithm)
}

// set returns the present keys, or none if they are too old.
func (k *keys) set() *keySet {
	if k.url && time.Now().UnixNano()-k.fetched.Load() > int64(keysLast) {
		return &keySet{verified: new(cache)}
	}
	return k.current.Load()
}

// look reads the source, and puts its keys in force.
func (k *keys) look(ctx context.Context) error {
	text, err := k.read(ctx)
	if err != nil {
		return err
	}
	if k.current.Load() == nil || string(text) != k.text {
		set, err := parseKeys(text, k.logger)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name(), err)
		}
		if k.current.Load() != nil {
			k.logger.InfoContext(ctx, "the keys of tokens have changed", slog.Int("keys", len(set.keys)))
		}
		k.text = string(text)
		k.current.Store(set)
	}
	k.fetched.Store(time.Now().UnixNano())
	k.failed.Store(false)
	return nil
}

// name returns the source, without parts of a URL that may be secret.
func (k *keys) name() string {
	if !k.url {
		return k.source
	}
	u, err := url.Parse(k.source)
	if err != nil {
		return "the URL of the keys"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

func (k *keys) read(ctx context.Context) ([]byte, error) {
	if !k.url {
		f, err := os.Open(k.source)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readKeys(f)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.source, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be asked for", k.name())
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.client.Do(r)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err
		}
		return nil, fmt.Errorf("%s does not answer: %w", k.name(), err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers with %s", k.name(), res.Status)
	}
	return readKeys(res.Body)
}

func readKeys(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeySet+1))
	if err == nil && len(text) > maxKeySet {
		err = fmt.Errorf("the key set has more than %d bytes", maxKeySet)
	}
	return text, err
}

// parseKeys reads a key set. As RFC 7517 says, it leaves out keys that cannot be used here. If no
// key is left, that is an error.
func parseKeys(text []byte, logger *slog.Logger) (*keySet, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, errors.New(`this is not a JSON Web Key Set, {"keys": [...]}`)
	}
	if len(raw.Keys) > maxKeys {
		return nil, fmt.Errorf("the key set has %d keys, must have at most %d", len(raw.Keys), maxKeys)
	}
	set := &keySet{verified: new(cache)}
	for i, one := range raw.Keys {
		var key jose.JSONWebKey
		err := key.UnmarshalJSON(one)
		if err == nil {
			err = usable(&key)
		}
		if err != nil {
			// The error of the parser may contain the key, which may be a private one.
			logger.Warn("a key of the key set is ignored", slog.Int("key", i+1), slog.String("kid", key.KeyID), slog.String("why", reason(err)))
			continue
		}
		set.keys = append(set.keys, key)
	}
	if len(set.keys) == 0 {
		return nil, fmt.Errorf("of %d keys none can verify a token", len(raw.Keys))
	}
	return set, nil
}

// unusable is why a key cannot verify tokens.
type unusable string

func (u unusable) Error() string { return string(u) }

func reason(err error) string {
	if u, ok := errors.AsType[unusable](err); ok {
		return string(u)
	}
	return "it is not a key of a kind that is known"
}

func usable(k *jose.JSONWebKey) error {
	switch {
	case k.Use != "" && k.Use != "sig":
		return unusable("it is not for signatures")
	case k.Algorithm != "" && !slices.Contains(gatewayfile.Algorithms(), k.Algorithm):
		return unusable("its algorithm is none of those that can be accepted")
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < leastRSA || n > mostRSA {
			return unusable(fmt.Sprintf("it has %d bits, must have %d to %d", n, leastRSA, mostRSA))
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case []byte:
		return unusable("it is a secret, which has no place in a key set")
	default:
		return unusable("it is a private key, or of a kind that is not known")
	}
	return nil
}
