// Package policybench measures what it costs to find the rules that bind a request
// among many.
//
// # Basics
//
// [Run] makes policies of 10, 100 and 1,000 rules that differ in what they match,
// and matches one descriptor against each of them, which binds one of the rules.
//
// # Caveats
//
// No counter is asked. The rules have one condition each, so that the figures are
// of finding, not of conditions that have to be looked at in any case.
package policybench
