// Package target reads the URL of a store in Redis or Valkey and connects to what it names:
// one server, the primary that Sentinels know, or the nodes of a cluster.
package target
