// Package leasebench measures what leases save on keys that are asked for often, what
// they cost on keys that are not, and counts whether they ever admit too much: layered
// stores around one Redis, against that alone.
package leasebench
