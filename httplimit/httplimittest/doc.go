// Package httplimittest says what a middleware built on package httplimit must
// do, whatever the framework: a suite of requests over real connections.
//
// # Basics
//
// An adapter's own tests make a server from a store and options, with the three
// routes that [Server] names:
//
//	func TestAdapter(t *testing.T) {
//		httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
//			limit, err := httplimit.New(store, opts...)
//			if err != nil {
//				return httplimittest.Server{}, err
//			}
//			mux := http.NewServeMux()
//			mux.HandleFunc("GET /items/{id}", site.ServeItem)
//			...
//		})
//	}
//
// In front of the limits the server signs its users in: it takes the header
// [UserHeader] and keeps it where handlers of that framework look for their user,
// under [UserKey].
//
// # Caveats
//
// The suite imports package testing and belongs in tests. All of its requests
// come from 127.0.0.1: a server must listen there.
package httplimittest
