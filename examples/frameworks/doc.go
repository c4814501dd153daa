// Package frameworks has one small service for each web framework, limited by
// the adapter for it. Each is started by
//
//	go run ./examples/frameworks/gin
//
// and listens at http://127.0.0.1:8080 unless -listen says otherwise.
package frameworks
