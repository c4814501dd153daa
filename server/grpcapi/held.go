package grpcapi

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/codes"
)

// MaxHeld bounds, in bytes, the messages of all streams of a service together that are being dealt
// with: from when they were received until their answers are sent. A stream whose message would be
// beyond it ends with RESOURCE_EXHAUSTED. A message is dealt with at once unless its caller reads no
// answers, so that only such callers come near it.
const MaxHeld = 64 << 20

// held counts the bytes of messages that are being dealt with.
type held struct{ bytes atomic.Int64 }

// add notes a message. The error is a status.
func (h *held) add(n int) error {
	if h.bytes.Add(int64(n)) > MaxHeld {
		h.remove(n)
		return newStatus(codes.ResourceExhausted, ReasonHeld,
			fmt.Sprintf("the messages whose answers are not read have more than %d bytes together; read the answers. Nothing of this message was decided", MaxHeld))
	}
	return nil
}

func (h *held) remove(n int) { h.bytes.Add(-int64(n)) }
