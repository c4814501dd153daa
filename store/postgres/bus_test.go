package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/bubbletest"
)

// TestSaidWhileClosing: who waits for his turn to say something while the store is closed
// makes no connection any more, which nobody would end.
func TestSaidWhileClosing(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	dialled := errors.New("a connection is made")
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return dialled }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for range 1000 {
		bubbletest.Test(t, func(t *testing.T) {
			b := newBus(pool, "channel")
			held := <-b.speaker
			go b.close()
			bubbletest.Wait()
			said := make(chan error, 4)
			for range cap(said) {
				go func() { said <- b.say(t.Context(), "text") }()
			}
			bubbletest.Wait()
			b.speaker <- held
			for range cap(said) {
				if err := <-said; err == nil || errors.Is(err, dialled) {
					t.Fatalf("behind the end: %v", err)
				}
			}
		})
	}
}
