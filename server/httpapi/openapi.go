package httpapi

import _ "embed" // for openAPI

// openAPI describes the API for programs that generate clients. It is written by hand; tests
// compare every route, status and example with the handlers.
//
//go:embed openapi.json
var openAPI []byte
