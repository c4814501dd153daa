// Package spelling asks real servers what they read in the paths of requests, holds the
// table of package internal/spelling/spellingtest against that, and attacks such servers
// through the gateway and the proxies that ask it.
//
// # Caveats
//
// What it needs is installed by scripts/install-test-programs: Java with Tomcat, Jetty and
// Spring, Express, Starlette, PHP, Rails' router with Puma, nginx, HAProxy. Caddy is built
// from its Go module.
package spelling
