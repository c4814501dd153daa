// Package servicebench measures what one check costs Headgate's server, beside
// HTTP servers that only echo.
//
// # Basics
//
// Each contender is a process of its own, which [Run] starts, saturates over
// keep-alive connections and stops. What counts is the CPU time that this
// process spends on each request, as the kernel accounts it: the load generator
// shares the machine, but not the account.
//
// # Caveats
//
// CPU time is read from /proc, so that this package measures on Linux only. The
// kernel accounts in hundredths of a second, which is why slices last a second
// or longer.
package servicebench
