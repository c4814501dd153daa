package permits

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/test/servers"
)

func TestMain(m *testing.M) {
	if setting := os.Getenv(settings); setting != "" {
		if err := hold(setting); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// count is how many trials there are, 12 or what HEADGATE_PERMIT_TRIALS says.
func count(t *testing.T) int {
	text := os.Getenv("HEADGATE_PERMIT_TRIALS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("HEADGATE_PERMIT_TRIALS: %v", err)
	}
	return n
}

func TestTrials(t *testing.T) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Logf("%+v", Run(t, Redis(servers.Start(t, kind)), count(t)))
		})
	}
	t.Run("postgres", func(t *testing.T) {
		s := servers.StartPostgres(t)
		t.Logf("%+v", Run(t, Place{
			URL: func(addr string) string { return "postgres://headgate@" + addr + "/postgres" }, Addr: s.Addr(),
			SetClock: s.SetClock,
			Left: func() int64 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				conn, err := pgx.Connect(ctx, s.URL())
				if err != nil {
					return -1
				}
				defer conn.Close(ctx)
				n := int64(-1)
				_ = conn.QueryRow(ctx, "SELECT count(*) FROM headgate").Scan(&n) // -1 then
				return n
			},
		}, count(t)))
	})
}
