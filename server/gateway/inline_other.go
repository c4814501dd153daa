//go:build !unix

package gateway

import "syscall"

// canPeek says that isQuiet can tell.
const canPeek = false

// isQuiet reports whether a connection is open and nothing has come on it that was not read.
func isQuiet(syscall.RawConn) bool { return false }
