// Package gatewaybench measures what one request costs Headgate's gateway, and how
// long it holds it up, beside a bare httputil.ReverseProxy.
//
// # Basics
//
// Each proxy is a process of its own before the same upstream server, which is a
// part of this one. [Run] measures twice: saturated, for the CPU time of each
// request as package servicebench does, and at half of that load in an open loop,
// for the time that a request takes.
//
// # Caveats
//
// Those of package servicebench. In an open loop requests are sent when their time
// has come, whether others have been answered or not, and their time counts from
// when they were due: a proxy that stalls is not spared the requests that come
// meanwhile. The load generator and the upstream server run on the same cores; what
// they and the kernel take is in the times of all alike.
package gatewaybench
