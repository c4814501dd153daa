// Package prefetch asks the processor for memory that is needed soon, so that it arrives while
// other work is done.
package prefetch
