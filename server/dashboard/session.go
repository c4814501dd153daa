package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"
)

const (
	// sessionFor is how long a session lasts: a working day.
	sessionFor = 12 * time.Hour
	// maxSessions is the maximum number of sessions. At the maximum, a new session ends the oldest
	// one.
	maxSessions = 64
)

// same reports whether two secrets are equal. Its time reveals nothing about either.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// sessions has the valid sessions by the hashes of their cookies, so that the time of a look-up
// reveals nothing about the cookies. It is safe for concurrent use.
type sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]time.Time // the end of each session
}

// begin begins a session and returns its cookie.
func (s *sessions) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.all == nil {
		s.all = make(map[[sha256.Size]byte]time.Time)
	}
	var oldest [sha256.Size]byte
	var until time.Time
	for id, end := range s.all {
		if now.After(end) {
			delete(s.all, id)
			continue
		}
		if until.IsZero() || end.Before(until) {
			oldest, until = id, end
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
	cookie := rand.Text()
	s.all[sha256.Sum256([]byte(cookie))] = now.Add(sessionFor)
	return cookie
}

func (s *sessions) valid(cookie string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.all[sha256.Sum256([]byte(cookie))]
	return ok && time.Now().Before(end)
}

// end ends a session, and reports whether it was valid.
func (s *sessions) end(cookie string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := sha256.Sum256([]byte(cookie))
	until, ok := s.all[id]
	delete(s.all, id)
	return ok && time.Now().Before(until)
}

// cookieName returns the name of the cookie. Over TLS it has the prefix __Host-, with which
// browsers bind the cookie to exactly this host.
func (h *Handler) cookieName() string {
	if h.o.Secure {
		return "__Host-headgate"
	}
	return "headgate"
}

func (h *Handler) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: h.cookieName(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: h.o.Secure, SameSite: http.SameSiteStrictMode}
}

func (h *Handler) cookieOf(r *http.Request) string {
	c, err := r.Cookie(h.cookieName())
	if err != nil {
		return ""
	}
	return c.Value
}
