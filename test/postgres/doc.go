// Package postgres holds store/postgres against real PostgreSQL servers.
package postgres
