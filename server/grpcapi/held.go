package grpcapi

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/codes"
)

// MaxHeld is the maximum size, in bytes, of all messages of a service's streams that are being
// handled at a time: from their arrival until their requests are answered, or handed to the
// goroutines that answer them. A stream whose message would exceed it ends with RESOURCE_EXHAUSTED.
// Messages are handled at once unless their caller does not read the answers, so only such callers
// come near the bound.
const MaxHeld = 64 << 20

// held counts the bytes of the messages that are being handled. It is safe for concurrent use.
type held struct{ bytes atomic.Int64 }

// add counts a message of n bytes. The error is a gRPC status.
func (h *held) add(n int) error {
	if h.bytes.Add(int64(n)) > MaxHeld {
		h.remove(n)
		return newStatus(codes.ResourceExhausted, ReasonHeld,
			fmt.Sprintf("the messages whose answers are not read have more than %d bytes together; read the answers. Nothing of this message was decided", MaxHeld))
	}
	return nil
}

func (h *held) remove(n int) { h.bytes.Add(-int64(n)) }
