package load

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
)

// kind is a class of results of a request.
type kind uint8

const (
	// served is an answer with a status below 400.
	served kind = iota
	// limited is a refusal by a limiter: 429, or gRPC's RESOURCE_EXHAUSTED.
	limited
	// failed is any other answer.
	failed
	// timedOut means that there was no answer in time.
	timedOut
	// broken means that there was no answer, for another reason.
	broken
	// abandoned means that there was no answer because the measurement was ended.
	abandoned
)

// answer is the result of a request.
type answer struct {
	kind kind
	// code is the status that is counted, and class the group whose latencies are measured
	// together. Without an answer, both are the reason.
	code, class string
	status      int // of HTTP
	header      http.Header
}

// The reasons why there is no answer.
const (
	noTime    = "timeout"
	noServer  = "refused"
	noWhole   = "closed"
	noHTTP    = "malformed"
	noOther   = "other"
	noLeisure = "interrupted"
)

// answered returns the result for an HTTP answer.
func answered(status int, header http.Header) answer {
	a := answer{status: status, header: header, code: strconv.Itoa(status), class: strconv.Itoa(status/100) + "xx"}
	switch {
	case status == http.StatusTooManyRequests:
		a.kind, a.class = limited, "429"
	case status >= http.StatusBadRequest:
		a.kind = failed
	}
	return a
}

// grpcCodes are the names of gRPC's statuses.
var grpcCodes = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// answeredGRPC returns the result for a gRPC answer, whose status is in the headers or the
// trailers.
func answeredGRPC(res *http.Response) answer {
	text := res.Trailer.Get("Grpc-Status")
	if text == "" {
		text = res.Header.Get("Grpc-Status")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= len(grpcCodes) {
		if res.StatusCode == http.StatusOK {
			return answer{kind: broken, code: noHTTP, class: noHTTP}
		}
		return answered(res.StatusCode, res.Header)
	}
	a := answer{kind: failed, code: grpcCodes[n], class: "failed", status: res.StatusCode, header: res.Header}
	switch grpcCodes[n] {
	case "OK":
		a.kind, a.class = served, "ok"
	case "RESOURCE_EXHAUSTED":
		a.kind, a.class, a.status = limited, "limited", http.StatusTooManyRequests
	}
	return a
}

// unanswered returns the result of a request that failed with an error.
func unanswered(err error) answer {
	var code string
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return answer{kind: timedOut, code: noTime, class: noTime}
	case errors.Is(err, errMalformed):
		code = noHTTP
	case errors.Is(err, syscall.ECONNREFUSED):
		code = noServer
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		code = noWhole
	default:
		code = noOther
	}
	return answer{kind: broken, code: code, class: code}
}

var errMalformed = errors.New("headgate: load: the answer is not HTTP, or its header is too long")
