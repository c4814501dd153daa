// Package docs writes the reference pages in docs/reference, each from what decides about its
// subject: the schemas of the files, the kinds of warnings, the OpenAPI document, and the
// program's own manual.
//
// # Basics
//
// [Pages] returns all pages. TestWritten compares docs/reference with them, and `make reference`
// writes it. The page of metrics is not among them: test/monitoring writes that one from what
// real servers show.
//
// # Caveats
//
// The schemas are read from the files in package config, which its tests hold against the loader,
// and the OpenAPI document from the file that the server serves.
package docs
