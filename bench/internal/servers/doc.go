// Package servers starts the servers that are measured, or that others are measured with:
// each is a process of its own on a free loopback port, which nobody else uses.
//
// # Basics
//
// [Start] runs any command. [StartRedis], [StartPostgres] and [StartMemcached] run stores, and
// [Build] builds Headgate's server. Whoever starts a process stops it.
//
// # Caveats
//
// The CPU time of a process is read from /proc, which only Linux has. The kernel counts it in
// hundredths of a second, so slices should last a second or longer.
package servers
