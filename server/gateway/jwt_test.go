package gateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
)

// issuer makes tokens and publishes its keys.
type issuer struct {
	keys map[string]crypto.Signer
}

func newIssuer(t *testing.T, kids ...string) *issuer {
	t.Helper()
	i := &issuer{keys: make(map[string]crypto.Signer)}
	for _, kid := range kids {
		var key crypto.Signer
		var err error
		switch {
		case strings.HasPrefix(kid, "rsa"):
			key, err = rsa.GenerateKey(rand.Reader, 2048)
		case strings.HasPrefix(kid, "ed"):
			_, key, err = ed25519.GenerateKey(rand.Reader)
		default:
			key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		}
		if err != nil {
			t.Fatal(err)
		}
		i.keys[kid] = key
	}
	return i
}

// set is the key set of the kids, with more that is no use.
func (i *issuer) set(t *testing.T, more string, kids ...string) []byte {
	t.Helper()
	var all []string
	for _, kid := range kids {
		text, err := json.Marshal(jose.JSONWebKey{Key: i.keys[kid].Public(), KeyID: kid, Use: "sig"})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	if more != "" {
		all = append(all, more)
	}
	return []byte(`{"keys":[` + strings.Join(all, ",") + `]}`)
}

// token is one that the key has signed; nil for a claim leaves it out.
func (i *issuer) token(t *testing.T, kid string, algorithm jose.SignatureAlgorithm, change map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": "https://issuer", "aud": []string{"other", "api"}, "sub": "u1", "tier": "pro", "exp": time.Now().Add(time.Hour).Unix()}
	for name, v := range change {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	header := (&jose.SignerOptions{}).WithType("JWT")
	if kid != "" && change["kid"] != "" {
		header = header.WithHeader("kid", kid)
	}
	delete(claims, "kid")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: i.keys[kid]}, header)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// keyFile writes a key set to a file.
func keyFile(t *testing.T, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// byUser are rules that count by what tokens say.
func byUser() []policy.Rule {
	return []policy.Rule{
		{Per: []policy.Part{{Entry: "user"}}, Match: []policy.Condition{policy.Equal("tier", "pro")}, Limits: headgate.MustRule("pro", headgate.PerHour(1000))},
		{Match: []policy.Condition{policy.Absent("user")}, Per: []policy.Part{{Entry: "ip"}}, Limits: headgate.MustRule("anonymous", headgate.PerHour(500))},
	}
}

func withJWT(o Options, keys string) Options {
	o.Identity.JWT = &gatewayfile.JWT{Keys: keys, Issuer: "https://issuer", Audience: "api", Claims: map[string]string{"user": "sub", "tier": "tier", "level": "https://issuer/level"}}
	return o
}

func TestTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "rsa", "ec", "ed", "rsa-other")
	// What cannot be used is left out: unknown kinds, secrets, keys that are too
	// short or not for signatures.
	more := `{"kty":"new"},{"kty":"oct","k":"Z2VoZWlt","kid":"secret"},{"kty":"RSA","kid":"short","n":"AQAB","e":"AQAB"},` + strings.Replace(strings.TrimSuffix(strings.TrimPrefix(string(i.set(t, "", "rsa-other")), `{"keys":[`), "]}"), `"sig"`, `"enc"`, 1)
	o := withJWT(to(upstream(t, echo).URL), keyFile(t, i.set(t, more, "rsa", "ec", "ed")))
	o.Request.Set = []gatewayfile.Header{{Name: "X-User", Entry: "user"}, {Name: "X-Level", Entry: "level"}}
	g := serveGateway(t, decider(t, byUser()), o)
	c := client(t)

	for kid, algorithm := range map[string]jose.SignatureAlgorithm{"rsa": jose.RS256, "ec": jose.ES256, "ed": jose.EdDSA} {
		good := i.token(t, kid, algorithm, map[string]any{"https://issuer/level": 7})
		for range 2 { // the second one is remembered
			a := get(t, c, g.url+"/", "Authorization: bearer "+good, "X-User: forged")
			a.wants(t, 200, "X-RateLimit-Limit: 1000")
			a.saw(t, "X-User: u1", "X-Level: 7")
		}
	}
	now := time.Now()
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"u1","tier":"pro","exp":9999999999}`)) + "."
	good := i.token(t, "rsa", jose.RS256, nil)
	for name, tt := range map[string]struct {
		token  string
		status int
		detail string
	}{
		"expired":              {i.token(t, "rsa", jose.RS256, map[string]any{"exp": now.Add(-time.Minute).Unix()}), 401, "The token has expired."},
		"within leeway":        {i.token(t, "rsa", jose.RS256, map[string]any{"exp": now.Add(-10 * time.Second).Unix()}), 200, ""},
		"not yet":              {i.token(t, "rsa", jose.RS256, map[string]any{"nbf": now.Add(time.Minute).Unix()}), 401, "The token is not valid yet."},
		"nearly":               {i.token(t, "rsa", jose.RS256, map[string]any{"nbf": now.Add(10 * time.Second).Unix()}), 200, ""},
		"without an end":       {i.token(t, "rsa", jose.RS256, map[string]any{"exp": nil}), 401, "The token is not valid."},
		"another issuer":       {i.token(t, "rsa", jose.RS256, map[string]any{"iss": "https://evil"}), 401, "The token is not valid."},
		"another audience":     {i.token(t, "rsa", jose.RS256, map[string]any{"aud": "other"}), 401, "The token is not valid."},
		"algorithm not listed": {i.token(t, "rsa", jose.PS256, nil), 401, "The token is not valid."},
		"key that is left out": {i.token(t, "rsa-other", jose.RS256, nil), 401, "The token is not valid."},
		"without a kid":        {i.token(t, "rsa", jose.RS256, map[string]any{"kid": ""}), 401, "The token is not valid."},
		"not signed":           {unsigned, 401, "The token is not valid."},
		"tampered":             {good[:strings.Index(good, ".")+5] + "A" + good[strings.Index(good, ".")+6:], 401, "The token is not valid."},
		"too long":             {good + strings.Repeat("A", maxToken), 401, "The token is not valid."},
		"no token at all":      {"an-api-key", 200, ""},
	} {
		a := get(t, c, g.url+"/", "Authorization: Bearer "+tt.token)
		if a.StatusCode != tt.status || !strings.Contains(a.text, tt.detail) {
			t.Errorf("%s: %s %s, want %d %s", name, a.Status, a.text, tt.status, tt.detail)
		}
		if tt.status == 401 {
			// It was charged as what it is: a request from nobody.
			a.wants(t, 401, `WWW-Authenticate: Bearer error="invalid_token"`, "X-RateLimit-Limit: 500")
		}
	}
	get(t, c, g.url+"/").wants(t, 200, "X-RateLimit-Limit: 500")
	get(t, c, g.url+"/", "Authorization: Basic abc").wants(t, 200, "X-RateLimit-Limit: 500")
	if strings.Contains(g.log.String(), "Z2VoZWlt") || strings.Count(g.log.String(), "a key of the key set is ignored") != 4 {
		t.Errorf("the log is %s", g.log)
	}
}

func TestTokenThatIsRequired(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	o := withJWT(to(upstream(t, echo).URL), keyFile(t, i.set(t, "", "ec")))
	o.Identity.JWT.Required, o.Identity.JWT.Header = true, "x-token"
	g := serveGateway(t, decider(t, byUser()), o)
	c := client(t)
	get(t, c, g.url+"/").wants(t, 401, "WWW-Authenticate: Bearer", "X-RateLimit-Limit: 500")
	get(t, c, g.url+"/", "X-Token: key").wants(t, 401, `WWW-Authenticate: Bearer error="invalid_token"`)
	// One key needs no name, and tokens elsewhere leave Authorization to API keys.
	get(t, c, g.url+"/", "X-Token: "+i.token(t, "ec", jose.ES256, map[string]any{"kid": ""}), "Authorization: Bearer key").wants(t, 200)
}

// A token behind another word than Bearer is verified if that word is named. If it is not, the log
// says that nobody reads it.
func TestTokenBehindAnotherWord(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	o := withJWT(to(upstream(t, echo).URL), keyFile(t, i.set(t, "", "ec")))
	usual := serveGateway(t, decider(t, byUser()), o)
	o.Identity.JWT.Header = "Authorization:JWT"
	named := serveGateway(t, decider(t, byUser()), o)
	c := client(t)
	token := i.token(t, "ec", jose.ES256, map[string]any{"kid": "ec"})
	get(t, c, usual.url+"/", "Authorization: JWT "+token).wants(t, 200, "X-RateLimit-Limit: 500")
	if log := usual.log.String(); !strings.Contains(log, "read neither as an API key nor as a token") || strings.Contains(log, token) {
		t.Errorf("the log is %s", log)
	}
	get(t, c, named.url+"/", "Authorization: jwt "+token[:len(token)-9]+"AAAAAAAAA").wants(t, 401)
	get(t, c, named.url+"/", "Authorization: JWT "+token+" x").wants(t, 400)
	if a := get(t, c, named.url+"/", "Authorization: JWT "+token); a.StatusCode != 200 || a.Header.Get("X-Ratelimit-Limit") == "500" {
		t.Errorf("the token is answered with %s, limit %s", a.Status, a.Header.Get("X-Ratelimit-Limit"))
	}
}

// The wrong kinds of claims are none.
func TestClaims(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{`"text"`: "text", `"\u00e9\n"`: "é\n", "12": "12", "1.5": "1.5", "true": "true", "null": "", `["a"]`: "", `{"a":1}`: "", "": ""} {
		if got := claimText([]byte(raw)); got != want {
			t.Errorf("%s is %q, want %q", raw, got, want)
		}
	}
	// What a header cannot hold does not get into one.
	i := newIssuer(t, "ec")
	o := withJWT(to(upstream(t, echo).URL), keyFile(t, i.set(t, "", "ec")))
	o.Request.Set = []gatewayfile.Header{{Name: "X-User", Entry: "user"}}
	g := serveGateway(t, decider(t, byUser()), o)
	a := get(t, client(t), g.url+"/", "Authorization: Bearer "+i.token(t, "ec", jose.ES256, map[string]any{"sub": "a\r\nX-Admin: 1"}))
	a.wants(t, 200)
	a.saw(t, "X-User: ", "X-Admin: ")
}

// A key set at a URL is fetched again for a key that is not known, but not for each
// such token.
func TestKeysOfAURL(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "old", "new", "newest")
	var set atomic.Value
	var fetched atomic.Int64
	set.Store(i.set(t, "", "old"))
	server := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		_, _ = w.Write(set.Load().([]byte))
	})
	o := withJWT(to(upstream(t, echo).URL), server.URL+"/keys?secret=geheim")
	g := serveGateway(t, decider(t, byUser()), o)
	c := client(t)
	ask := func(kid string, status int) {
		t.Helper()
		get(t, c, g.url+"/", "Authorization: Bearer "+i.token(t, kid, jose.ES256, nil)).wants(t, status)
	}
	ask("old", 200)
	set.Store(i.set(t, "", "new"))
	ask("old", 200)
	ask("new", 200)
	ask("old", 401) // remembered, and verified anew
	if n := fetched.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times, want 2", n)
	}
	set.Store(i.set(t, "", "newest"))
	for range 5 {
		ask("newest", 401)
	}
	if n := fetched.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times, want 2", n)
	}
	g.current.Load().tokens.keys.mu.Lock()
	g.current.Load().tokens.keys.last = time.Now().Add(-time.Hour)
	g.current.Load().tokens.keys.mu.Unlock()
	ask("newest", 200)

	// Keys that cannot be fetched stay, but not for ever.
	set.Store([]byte("nothing"))
	g.current.Load().tokens.keys.mu.Lock()
	g.current.Load().tokens.keys.last = time.Time{}
	g.current.Load().tokens.keys.mu.Unlock()
	ask("old", 401)
	ask("newest", 200)
	if !g.current.Load().tokens.keys.failed.Load() || !strings.Contains(g.log.String(), "could not be read") {
		t.Errorf("the log is %s", g.log)
	}
	g.current.Load().tokens.keys.fetched.Store(time.Now().Add(-keysLast - time.Second).UnixNano())
	ask("newest", 401)
	if strings.Contains(g.log.String(), "geheim") {
		t.Errorf("a secret is in the log:\n%s", g.log)
	}
}

// Of many requests that come with a new key at once, all wait for the one look at it.
func TestManyTokensOfANewKey(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "old", "new")
	var set atomic.Value
	set.Store(i.set(t, "", "old"))
	release := make(chan struct{})
	server := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		text := set.Load().([]byte)
		if strings.Contains(string(text), `"new"`) {
			<-release
		}
		_, _ = w.Write(text)
	})
	g := serveGateway(t, decider(t, byUser()), withJWT(to(upstream(t, echo).URL), server.URL))
	set.Store(i.set(t, "", "old", "new"))
	c, token := client(t), "Authorization: Bearer "+i.token(t, "new", jose.ES256, nil)
	const many = 10
	answers := make(chan answer, many)
	for range many {
		go func() { answers <- get(t, c, g.url+"/", token) }()
	}
	eventually(t, "all have come", func() bool { return g.counts.inFlight.Load() == many || len(answers) > 0 })
	close(release)
	for range many {
		next(t, answers).wants(t, 200)
	}
}

// A file is read again when it changes.
func TestKeysOfAFile(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "old", "new")
	name := keyFile(t, i.set(t, "", "old"))
	g := serveGateway(t, decider(t, byUser()), withJWT(to(upstream(t, echo).URL), name))
	if err := os.WriteFile(name, i.set(t, "", "new"), 0o600); err != nil {
		t.Fatal(err)
	}
	get(t, client(t), g.url+"/", "Authorization: Bearer "+i.token(t, "new", jose.ES256, nil)).wants(t, 200)
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	far := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/huge":
			_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat(" ", maxKeySet) + `]}`))
		case "/around":
			http.Redirect(w, r, "/around", http.StatusFound)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	private, err := json.Marshal(jose.JSONWebKey{Key: i.keys["ec"], KeyID: "private"})
	if err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string]string{
		filepath.Join(t.TempDir(), "absent.json"):                                             "no such file",
		keyFile(t, []byte("{")):                                                               "not a JSON Web Key Set",
		keyFile(t, []byte(`{"keys":[]}`)):                                                     "of 0 keys none",
		keyFile(t, []byte(`{"keys":[`+strings.Repeat(`{},`, maxKeys)+`{}]}`)):                 "must have at most 100",
		keyFile(t, []byte(fmt.Sprintf(`{"keys":[%s]}`, private))):                             "of 1 keys none",
		strings.Replace(far.URL, "http://", "http://user:geheim@", 1) + "/forbidden?k=geheim": "403 Forbidden",
		far.URL + "/huge":   "more than 262144 bytes",
		far.URL + "/around": "redirects too often",
		closedTarget(t):     "does not answer",
		"https://":          "cannot be read",
	} {
		g, err := New(t.Context(), decider(t, nil), withJWT(to("http://127.0.0.1:1"), keys))
		if err == nil {
			g.Close()
			t.Errorf("the keys of %s were accepted", keys)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c cache
	var sum [32]byte
	for n := range 3 * maxVerified {
		sum[0], sum[1], sum[2] = byte(n), byte(n>>8), byte(n>>16)
		c.put(sum, new(token))
		if c.get(sum) == nil {
			t.Fatalf("token %d was forgotten at once", n)
		}
	}
	if n := len(c.young) + len(c.former); n > 2*maxVerified {
		t.Errorf("%d tokens are remembered", n)
	}
	// What is asked for stays.
	for n := range maxVerified {
		var other [32]byte
		other[5], other[0], other[1] = 1, byte(n), byte(n>>8)
		c.put(other, new(token))
		if n%1000 == 0 && c.get(sum) == nil {
			t.Fatalf("a token in use was forgotten after %d others", n)
		}
	}
}
