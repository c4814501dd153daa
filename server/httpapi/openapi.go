package httpapi

import _ "embed" // For the document below.

// openAPI describes the API for programs that generate clients. It is written by hand; tests
// compare every route, status and example with the handlers.
//
//go:embed openapi.json
var openAPI []byte
