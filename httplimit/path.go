package httplimit

import (
	"net/http"

	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/spelling"
)

// PathForm is a form of paths that servers read in different ways, together with one way to read
// it; see [Paths].
type PathForm uint16

// The ways to read such forms.
const (
	// IgnoredOverrides says that the method is that of the request line, whatever headers such as
	// X-HTTP-Method-Override and the parameter _method say.
	IgnoredOverrides = PathForm(spelling.IgnoredOverrides)
	// EncodedSlashes says that %2F and %5C belong to the segment in which they are, as in
	// /projects/group%2Fname.
	EncodedSlashes = PathForm(spelling.EncodedSlashes)
	// DoubleEncoding says that paths are decoded once: %2541 is the text %41, not A.
	DoubleEncoding = PathForm(spelling.DoubleEncoding)
	// LeadingSlashes says that //a is the same as /a, or is not served, but never means the host a.
	LeadingSlashes = PathForm(spelling.LeadingSlashes)
	// CutParameters says that a ; and what follows it in a segment is removed before anything is
	// decoded, as Tomcat, Jetty and Spring do.
	CutParameters = PathForm(spelling.CutParameters)
	// KeptParameters says that ; is a character like any other. It excludes
	// CutParameters.
	KeptParameters = PathForm(spelling.KeptParameters)
	// OtherBytes says that bytes that are not UTF-8, such as %FF, are kept as they are, or refused.
	OtherBytes = PathForm(spelling.OtherBytes)
	// CutPathInfo says that /login.php/x is /login.php, as in PHP.
	CutPathInfo = PathForm(spelling.CutPathInfo)
	// FrontController says that /index.php/login is /login, as in frameworks for PHP.
	FrontController = PathForm(spelling.FrontController)
	// KeptPathInfo says that .php is text like any other. It excludes the two above.
	KeptPathInfo = PathForm(spelling.KeptPathInfo)
	// IgnoreCase says that /Login is the same as /login.
	IgnoreCase = PathForm(spelling.IgnoreCase)
	// ExactCase says that it is not. It excludes IgnoreCase.
	ExactCase = PathForm(spelling.ExactCase)
	// IgnoreSlash says that /login/ is the same as /login.
	IgnoreSlash = PathForm(spelling.IgnoreSlash)
	// ExactSlash says that it is not. It excludes IgnoreSlash.
	ExactSlash = PathForm(spelling.ExactSlash)
	// CutExtensions says that /login.json is the same as /login, as in Rails.
	CutExtensions = PathForm(spelling.CutExtensions)
)

// Paths says that another server than this program's router reads the paths of requests, such as
// one behind a reverse proxy, and how that server reads certain forms. If servers that read these
// forms in the same way can still read a request's path in different ways, the request is answered
// with 400, whatever entries the limits use. A function given with [Route], such as [MuxRoute],
// sees the path as that server reads it.
//
// Without this option, such paths are refused only if the path itself matters: for the entry path
// of a [Policy], or for the route of a request that has no pattern.
func Paths(forms ...PathForm) Option {
	return func(s *settings) {
		s.readElsewhere = true
		for _, f := range forms {
			s.forms |= spelling.Forms(f)
		}
		if problem := s.forms.Problem(); problem != "" {
			s.Bad("Paths", "Paths: %s", problem)
		}
	}
}

// readPath reads the path of a request. That of OPTIONS * is "*".
func (s *settings) readPath(r *http.Request) (spelling.Path, *spelling.Error) {
	if r.URL.Path == "*" && r.Method == http.MethodOptions {
		return spelling.Path{Text: "*"}, nil
	}
	return spelling.Read(r.URL.EscapedPath(), s.forms)
}

// path is the entry of that name.
func (s *settings) path(r *http.Request) string {
	p, _ := s.readPath(r)
	return p.Text
}

// unclearRoute is unclearPath for a route that is made from the path. How a pattern matches a path
// is decided by the router that serves it.
func (s *settings) unclearRoute(r *http.Request) string {
	if s.routeOf != nil || r.Pattern != "" {
		return ""
	}
	return s.unclearPath(r)
}

// unclearPath returns why the path of a request can be read in two ways, or "".
func (s *settings) unclearPath(r *http.Request) string {
	p, err := s.readPath(r)
	switch {
	case err != nil:
		return err.Error()
	case p.Kept != nil:
		return (&spelling.Error{Reason: spelling.Parameters, At: p.At}).Error()
	case s.forms&spelling.CutParameters != 0 && s.routeOf == nil && r.Pattern != "" && p.Cut:
		// The pattern was found by the path with its parameters.
		return `Servers read its path in different ways: it has parameters, behind ";".`
	case s.readElsewhere && s.forms&spelling.IgnoredOverrides == 0 && identity.Overridden(r.Header, r.URL.RawQuery) != "":
		return identity.Overridden(r.Header, r.URL.RawQuery)
	case !spelling.Method(r.Method):
		return "Its method has small letters, which some servers take for capital ones."
	}
	return ""
}

// asRead returns the request with its path as it is read, for functions that ask a router.
func (s *settings) asRead(r *http.Request) *http.Request {
	if !s.readElsewhere {
		return r
	}
	p, err := s.readPath(r)
	if err != nil || p.Is(r.URL) {
		return r
	}
	read := *r
	read.URL = p.URL()
	read.URL.RawQuery = r.URL.RawQuery
	return &read
}
