package httpapi

import _ "embed" // For the document below.

// openAPI describes the API for programs that generate clients. It is written
// by hand; tests hold every route, status and example against the handlers.
//
//go:embed openapi.json
var openAPI []byte
