//go:build !linux

package standby

import (
	"errors"
	"net"
	"time"
)

// Pool holds no connections on this system.
type Pool struct{}

// New returns [errors.ErrUnsupported] on this system.
func New(time.Duration) (*Pool, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Pool) Close() {}

// Enter refuses the connection.
func (*Pool) Enter(net.Conn, Member) bool { return false }
