package gatewaybench

import (
	"fmt"

	"github.com/headgate/headgate/bench/internal/workload"
)

// requests are those of the clients, as they go over the wire.
func requests(keys int) [][]byte {
	all := make([][]byte, keys)
	for i := range all {
		all[i] = fmt.Appendf(nil, "GET /items/%d?full=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\nX-API-Key: %s\r\n\r\n", i, workload.Key(i))
	}
	return all
}
