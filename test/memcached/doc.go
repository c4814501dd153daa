// Package memcached holds store/memcached against real memcached servers.
package memcached
