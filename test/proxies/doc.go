// Package proxies tests forward auth with the real proxies: nginx, HAProxy and
// Caddy, each started as examples/forward-auth starts it, beside the real program.
//
// # Caveats
//
// nginx and HAProxy must be installed, which `make test` does. Caddy is built from
// its Go module, which takes minutes when nothing of it has been built before.
//
// Traefik is not among them: its module cannot be built in reasonable time, and
// Debian has no package of it. Its part of docs/forward-auth.md was written after its
// source.
package proxies
