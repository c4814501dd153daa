package redis_test

import (
	"testing"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

func TestDocuments(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		storetest.RunDocuments(t, func(t testing.TB, clock func() int64) store.Documents {
			return stores.Open(t, client, clock)
		})
	})
}
