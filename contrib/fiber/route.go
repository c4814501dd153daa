package fiberlimit

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/httplimit"
)

// finder finds the route that will serve a request, which Fiber itself does step
// by step while it runs the handlers.
type finder struct{ table atomic.Pointer[table] }

// table is what an app's routes were when they were looked at.
type table struct {
	app      *fiber.App
	handlers uint32 // tells that there are new ones
	config   fiber.Config
	patterns map[string][]pattern // by method
}

// pattern is one that a handler is registered for.
type pattern struct {
	text string // as it was registered
	// prefix is what every path begins with that it matches, so that most
	// patterns need not be looked at closely.
	prefix string
}

// route is the method and the pattern of the route that serves the request.
func (f *finder) route(c fiber.Ctx) string {
	method := c.Method()
	var text string
	if c.Matched() {
		text = c.FullPath()
	} else {
		text = f.of(c.App()).find(method, c.Path())
	}
	if text == "" {
		return httplimit.Unmatched
	}
	if method == http.MethodHead {
		// Fiber has every GET route serve HEAD.
		method = http.MethodGet
	}
	return method + " " + text
}

// of returns the routes of the app.
func (f *finder) of(app *fiber.App) *table {
	t := f.table.Load()
	if t != nil && t.app == app && t.handlers == app.HandlersCount() {
		return t
	}
	t = &table{app: app, handlers: app.HandlersCount(), config: app.Config(), patterns: make(map[string][]pattern)}
	const withoutUse = true
	for _, r := range app.GetRoutes(withoutUse) {
		t.patterns[r.Method] = append(t.patterns[r.Method], pattern{r.Path, t.prefix(r.Path)})
	}
	f.table.Store(t)
	return t
}

// prefix is the part of a pattern before its first parameter. The slash before an
// optional one may be missing in a path.
func (t *table) prefix(text string) string {
	if i := strings.IndexAny(text, `:*+?\`); i >= 0 {
		text = text[:i]
	}
	return strings.TrimRight(t.folded(text), "/")
}

// folded is the path in lower case, unless the app tells cases apart.
func (t *table) folded(path string) string {
	if t.config.CaseSensitive {
		return path
	}
	return strings.ToLower(path)
}

// find returns the first pattern that matches, in the order in which Fiber goes
// through them, or "".
func (t *table) find(method, path string) string {
	if !t.config.StrictRouting && len(path) > 1 {
		path = strings.TrimRight(path, "/")
	}
	folded := t.folded(path)
	for _, p := range t.patterns[method] {
		if strings.HasPrefix(folded, p.prefix) && fiber.RoutePatternMatch(path, p.text, t.config) {
			return p.text
		}
	}
	return ""
}
