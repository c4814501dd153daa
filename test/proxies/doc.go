// Package proxies tests forward auth with the real proxies: nginx, HAProxy, Caddy and
// Traefik, each started as examples/forward-auth starts it, beside the real program.
//
// # Caveats
//
// nginx and HAProxy must be installed and Traefik fetched, which `make test` does.
// Caddy is built from its Go module, which takes minutes when nothing of it has been
// built before.
package proxies
