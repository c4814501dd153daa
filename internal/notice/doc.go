// Package notice says what clients are told: the headers of a verdict in each dialect,
// warnings, and problems. It writes headers into a map of names in canonical form, which
// an http.Header is, and knows no transport.
package notice
