// Package topologies tests the ways from a store to its servers: Sentinels that replace a
// primary, clusters whose slots move and whose nodes fail, TLS, what a user must be
// permitted, what is observed of each node, and what servers tell one another through
// them. What one server decides is in package redis.
package topologies
