//go:build !linux

package servers

import "syscall"

// attributes are the operating system's defaults: only Linux can tie a
// process's life to its parent's.
func attributes() *syscall.SysProcAttr { return nil }

// reserve keeps nothing: there are no names that end with their process.
func reserve(int) (release func(), err error) { return func() {}, nil }
