package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/store/memory"
)

func Example() {
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("mail", headgate.PerHour(1)), Direct: true}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The clock stands still, so that the answer is the same each time.
	store := memory.New(memory.Clock(func() int64 { return 1_700_000_000_000_000 }))
	handler := httpapi.New(over(set, store), httpapi.Options{})

	for range 2 {
		request := httptest.NewRequest(http.MethodPost, "/v1/check?status=true", strings.NewReader(`{"checks": [{"rule": "mail", "key": "user42"}]}`))
		request.Header.Set("Content-Type", "application/json")
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		fmt.Printf("%d %q\n", response.Code, response.Header().Get("Retry-After"))
	}
	// Output:
	// 200 ""
	// 429 "3600"
}
