// Package redis tests stores on one real server of each kind: that the scripts decide as
// the model and the oracle do, that processes share limits exactly, what a server that
// hangs, is full or comes back empty costs, and the layers that stand around a store.
// Sentinels and clusters are in package topologies.
package redis
