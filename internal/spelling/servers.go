package spelling

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/closest"
)

// Server is what is known of a server.
type Server struct {
	// Name is the word for it in configurations, and Title what it calls itself.
	Name, Title string
	// Forms are true of it.
	Forms Forms
}

const (
	// text is what nearly all do.
	text = DoubleEncoding | KeptParameters | KeptPathInfo | OtherBytes
	// asSent is what those do besides who compare paths before they decode them.
	asSent = text | EncodedSlashes | LeadingSlashes
	// servlets refuse what EncodedSlashes and OtherBytes are about.
	servlets = asSent&^KeptParameters | CutParameters
)

// servers are the servers that were asked, by their names. What they answered stands in package
// spellingtest, whose test holds it against this table; test/spelling asks them again.
var servers = []Server{
	{"bottle", "Bottle 0.13", text&^OtherBytes | LeadingSlashes},
	{"cherrypy", "CherryPy 18", asSent | IgnoreSlash},
	{"chi", "chi 5", asSent},
	{"echo", "Echo 4", asSent},
	{"express", "Express 4 and 5", asSent | IgnoreCase | IgnoreSlash},
	{"fastify", "Fastify 5", asSent},
	{"fiber", "Fiber 3", asSent | IgnoreCase | IgnoreSlash},
	{"flask", "Flask 3", text | LeadingSlashes},
	{"gin", "Gin 1.12", text | LeadingSlashes},
	{"go", "Go's `ServeMux`", asSent},
	{"hono", "Hono 4", asSent},
	{"javalin", "Javalin 7", asSent | IgnoreSlash},
	{"jersey", "Jersey 3", servlets | IgnoreSlash},
	{"jetty", "Jetty 12", servlets},
	{"koa", "Koa 3 with @koa/router", asSent | IgnoreCase | IgnoreSlash},
	{"nginx", "nginx", text | LeadingSlashes},
	{"node", "`new URL()` in Node.js", text | EncodedSlashes},
	{"php", "PHP: Apache, FPM, `php -S`; Symfony, Slim, `parse_url`", DoubleEncoding | KeptParameters | OtherBytes | CutPathInfo | FrontController},
	{"polka", "Polka 0.5", asSent | IgnoreSlash},
	{"rails", "the router of Rails 6.1", asSent | IgnoreSlash | CutExtensions},
	{"sanic", "Sanic 25", asSent | IgnoreSlash},
	{"spring", "Spring 6", servlets},
	{"starlette", "Starlette, FastAPI", text | LeadingSlashes},
	{"tomcat", "Tomcat 10.1", servlets},
	{"undertow", "Undertow's path handler", servlets | IgnoreSlash},
	{"vertx", "Vert.x 5", asSent | IgnoreSlash},
}

// Servers returns what is known of all servers, by their names.
func Servers() []Server { return slices.Clone(servers) }

// Any is a name for whatever may be behind: all servers together.
const Any = "any"

// Names returns the names that [Behind] knows.
func Names() []string {
	all := make([]string, 0, len(servers)+1)
	for i := range servers {
		all = append(all, servers[i].Name)
	}
	return append(all, Any)
}

// Behind returns what is true where each of the named servers may read a path. The problem is
// what is wrong with the names, or "".
func Behind(names ...string) (f Forms, problem string) {
	f = defined &^ folding
	for _, name := range names {
		found := false
		for i := range servers {
			if s := &servers[i]; s.Name == name || name == Any {
				f, found = f&s.Forms|(f|s.Forms)&folding, true
			}
		}
		if !found {
			advice := ""
			if meant := closest.Word(name, Names()); meant != "" {
				advice = fmt.Sprintf("; did you mean %q?", meant)
			}
			return 0, fmt.Sprintf("%q is no server that is known; there are %s%s", name, strings.Join(Names(), ", "), advice)
		}
	}
	if len(names) == 0 {
		return 0, ""
	}
	return f, ""
}
