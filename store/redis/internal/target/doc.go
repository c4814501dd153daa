// Package target parses the URL of a store in Redis or Valkey, and connects to the servers that it
// names: a single server, the primary behind Sentinels, or the nodes of a cluster.
package target
