package redis

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

//go:embed lua/members.lua
var membersLua string

// maxNode is the longest name of a node, in bytes.
const maxNode = 64

// Members records that a node, named by 1 to 64 bytes, is present for ttl from now, and removes
// nodes whose ttl is over. ttl is 0 to an hour; 0 records that the node has gone. Members returns
// how many nodes are present, and for how long the server has had its data: since the first call,
// or since the data was lost. Nodes count each other if they share a server, a database and a
// prefix.
//
// All nodes are in one sorted set. So on a cluster, only a loss of data on the node that has this
// set is noticed.
func (s *Store) Members(ctx context.Context, node string, ttl time.Duration) (nodes int64, age time.Duration, err error) {
	if len(node) == 0 || len(node) > maxNode || ttl < 0 || ttl > time.Hour {
		return 0, 0, headgate.Invalid("node", "",
			"its name has %d bytes and its time to live is %v, must be 1 to %d and up to %v", len(node), ttl, maxNode, time.Hour)
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return 0, 0, unavailable("members", err)
	}
	defer cancel()
	now := ""
	if s.clock != nil {
		now = string(appendInt(nil, s.clock()))
	}
	// Nodes ask only every few seconds, so keeping the script on the server would gain nothing.
	script, args := rueidis.NewLuaScript(membersLua), []string{node, string(appendInt(nil, ttl.Microseconds())), now}
	key := s.prefix + " members"
	got, err := guard.Do(ctx, s.guard(key), func() ([]int64, error) {
		return script.Exec(ctx, s.client, []string{key}, args).AsIntSlice()
	})
	switch {
	case err != nil:
		return 0, 0, unavailable("members", err)
	case len(got) != 2:
		return 0, 0, unavailable("members", fmt.Errorf("the script's answer has %d numbers, must have 2", len(got)))
	}
	return got[0], time.Duration(got[1]) * time.Microsecond, nil
}
