package chilimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"github.com/headgate/headgate"
	chilimit "github.com/headgate/headgate/contrib/chi"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests an hour for each address.
func Example() {
	limit, err := chilimit.New(memory.New(),
		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerHour(2))))
	if err != nil {
		panic(err) // every mistake in the options
	}
	router := chi.NewRouter()
	router.Use(limit)
	router.Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "item ", chi.URLParam(r, "id")) })

	for range 3 {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
