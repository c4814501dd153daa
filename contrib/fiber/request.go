package fiberlimit

import (
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"
)

// request makes the head of the request as net/http has it. Nothing in it shares
// memory with Fiber's, which is used again once the request is served.
func request(c fiber.Ctx) *http.Request {
	from := c.Request()
	r := (&http.Request{}).WithContext(&requestContext{c.Context(), c})
	r.Method = c.Method()
	r.URL = location(c)
	r.RequestURI = string(from.Header.RequestURI())
	r.Host = string(from.Host())
	r.Header = header(c)
	r.Body = http.NoBody
	// A chunked body has the length -1 in both; none is less in Fiber's.
	if r.ContentLength = int64(from.Header.ContentLength()); r.ContentLength < -1 {
		r.ContentLength = 0
	}
	r.RemoteAddr = c.RequestCtx().RemoteAddr().String()
	r.TLS = c.RequestCtx().TLSConnectionState()
	r.Proto = string(from.Header.Protocol())
	r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(r.Proto)
	return r
}

// location is the URL that Fiber routes by, which a handler may have changed.
func location(c fiber.Ctx) *url.URL {
	from := c.Request().URI()
	path, query := string(from.PathOriginal()), string(from.QueryString())
	u := &url.URL{Path: path, RawQuery: query}
	if plain, err := url.PathUnescape(path); err == nil && plain != path {
		u.Path, u.RawPath = plain, path
	}
	return u
}

// header copies the headers, with all of their text in one string.
func header(c fiber.Ctx) http.Header {
	from := &c.Request().Header
	var usual [1024]byte
	text, lines := usual[:0], 0
	for name, value := range from.All() {
		text = append(append(text, name...), value...)
		lines++
	}
	all := string(text)
	cut := func(n int) string {
		s := all[:n]
		all = all[n:]
		return s
	}
	h := make(http.Header, lines)
	values := make([]string, lines)
	for name, value := range from.All() {
		// Fiber may be told to leave names as they came.
		name, value := http.CanonicalHeaderKey(cut(len(name))), cut(len(value))
		if name == fiber.HeaderHost {
			continue // as net/http does
		}
		if there, ok := h[name]; ok {
			h[name] = append(there, value)
			continue
		}
		values[0] = value
		h[name], values = values[:1:1], values[1:]
	}
	return h
}
