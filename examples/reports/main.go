// Command reports is a web server that protects a database from its reports: however many
// copies of it run, at most three reports are made at a time. Others wait in turn for up to
// ten seconds, and are then told when to come again.
//
//	go run . postgres://user:password@127.0.0.1:5432/shop 127.0.0.1:8090
//	curl http://127.0.0.1:8090/report?account=7
//
// A report that takes longer than anybody wants to wait is ordered instead. The answer is 202,
// with the place to ask how far it is:
//
//	curl -i -X POST http://127.0.0.1:8090/reports?account=7
//
// The permits are kept in the same database. Those of a server that crashes are free again
// after five seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store/postgres"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reports URL ADDRESS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 4 * atATime // so that status pages need not wait for reports
	db, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer db.Close()
	// A report takes seconds, so that a busy database may take one for a permit.
	store, err := postgres.Open(ctx, url, postgres.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer store.Close()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	gate, err := shared.New(store, shared.Config{
		Name: "reports", Prefix: "reports", Limit: atATime, TTL: 5 * time.Second,
		Queue: 20, MaxWait: 10 * time.Second, Owner: fmt.Sprintf("%s:%d", host, os.Getpid()),
	})
	if err != nil {
		return err
	}
	ordered, err := newJobs(ctx, db, gate)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /report", &reports{db, gate})
	mux.HandleFunc("POST /reports", ordered.order)
	mux.HandleFunc("GET /reports/{id}", ordered.status)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	var working sync.WaitGroup
	working.Go(func() { ordered.work(ctx) })
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(end) // what is not done by then is cut off
	}()
	err = server.Serve(listener)
	stop()
	working.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return gate.Close(end)
}

// reports makes reports, three at a time.
type reports struct {
	db   *pgxpool.Pool
	gate *shared.Gate
}

// heavy stands for a query that keeps the database busy.
const heavy = "SELECT /* report */ $1::text || ': ' || count(*) FROM generate_series(1, 1000), pg_sleep(0.5)"

func (s *reports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	account := r.FormValue("account")
	// All accounts share the permits, and take turns when some have to wait.
	permit, err := s.gate.Acquire(r.Context(), flow.Request{Tenant: account})
	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
		wait := max(rejection.RetryAfter.Round(time.Second), time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
		http.Error(w, "too many reports are being made", http.StatusServiceUnavailable)
		return
	} else if err != nil {
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	defer permit.Done(flow.Success)
	// If the permit is lost, this context ends, and the driver cancels the query.
	ctx := permit.Context(r.Context())
	var report string
	if err := s.db.QueryRow(ctx, heavy, account).Scan(&report); err != nil {
		if errors.Is(context.Cause(ctx), shared.ErrLost) {
			err = context.Cause(ctx)
		}
		fmt.Fprintln(os.Stderr, "a report was not finished:", err)
		http.Error(w, "the report was not finished", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, report)
}
