package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
)

const (
	// atATime is how many reports are made at a time, by all copies of the program, and so
	// how many one copy may have to make.
	atATime = 3
	// mostJobs is how many reports may wait to be made.
	mostJobs = 100
	// lookAfter is how often a copy looks whether there is a report to make that another copy
	// was asked for.
	lookAfter = 500 * time.Millisecond
	// keepFor is for how long a report can be fetched.
	keepFor = time.Hour
)

// jobs makes reports that nobody waits for: who asks is told at once where to look, and the
// report is made in its turn. A job is a row. While a copy of the program makes its report, the
// row is locked; if that copy crashes, the database unlocks the row, and another copy makes the
// report.
type jobs struct {
	db    *pgxpool.Pool
	gate  *shared.Gate
	asked chan struct{} // has one for each worker to look again
}

func newJobs(ctx context.Context, db *pgxpool.Pool, gate *shared.Gate) (*jobs, error) {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// Two copies that create a table at once would disturb each other.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(202)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS report_jobs (
			id text PRIMARY KEY, account text NOT NULL, asked timestamptz NOT NULL DEFAULT now(), report text)`)
		return err
	})
	return &jobs{db: db, gate: gate, asked: make(chan struct{}, atATime)}, err
}

// state is what the status page says.
type state struct {
	State  string `json:"state"` // "waiting", "being made" or "done"
	Report string `json:"report,omitempty"`
}

func answer(w http.ResponseWriter, status int, s state) {
	w.Header().Set("Content-Type", "application/json")
	if s.State != "done" {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(s) // the client may be gone
}

// order takes a job: 202, with the place to ask.
func (j *jobs) order(w http.ResponseWriter, r *http.Request) {
	id := rand.Text()
	tag, err := j.db.Exec(r.Context(),
		"INSERT INTO report_jobs (id, account) SELECT $1, $2 WHERE (SELECT count(*) FROM report_jobs WHERE report IS NULL) < $3",
		id, r.FormValue("account"), mostJobs)
	switch {
	case err != nil:
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	case tag.RowsAffected() == 0:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many reports wait to be made", http.StatusServiceUnavailable)
		return
	}
	select {
	case j.asked <- struct{}{}:
	default: // all workers are about to look
	}
	w.Header().Set("Location", "/reports/"+id)
	answer(w, http.StatusAccepted, state{State: "waiting"})
}

// status says how far a job is.
func (j *jobs) status(w http.ResponseWriter, r *http.Request) {
	// A row that is locked is passed over: its report is being made.
	var report *string
	var locked bool
	err := j.db.QueryRow(r.Context(), `
		SELECT report, report IS NULL AND NOT EXISTS (
			SELECT FROM (SELECT id FROM report_jobs WHERE id = $1 FOR UPDATE SKIP LOCKED) AS free)
		FROM report_jobs WHERE id = $1`, r.PathValue("id")).Scan(&report, &locked)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		http.Error(w, "there is no such report", http.StatusNotFound)
	case err != nil:
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
	case report != nil:
		answer(w, http.StatusOK, state{"done", *report})
	case locked:
		answer(w, http.StatusOK, state{State: "being made"})
	default:
		answer(w, http.StatusOK, state{State: "waiting"})
	}
}

// work makes reports until the context ends.
func (j *jobs) work(ctx context.Context) {
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for ctx.Err() == nil {
				made, err := j.makeOne(ctx)
				if err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "a report was not finished, and is made again:", err)
				}
				if made {
					continue
				}
				select {
				case <-ctx.Done():
				case <-j.asked:
				case <-time.After(lookAfter):
				}
			}
		})
	}
	workers.Wait()
}

// makeOne makes the report that waits longest, if one does, and reports whether it has.
func (j *jobs) makeOne(ctx context.Context) (made bool, err error) {
	// Nobody waits for a permit with nothing to do.
	var waiting bool
	err = j.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM report_jobs WHERE report IS NULL)").Scan(&waiting)
	if err != nil || !waiting {
		return false, err
	}
	permit, err := j.gate.Acquire(ctx, flow.Request{Tenant: "jobs"})
	if errors.Is(err, flow.ErrShed) {
		return false, nil // others use all permits
	} else if err != nil {
		return false, err
	}
	defer permit.Done(flow.Success)
	// If the permit is lost, this context ends, the driver cancels the query, and the row is
	// unlocked.
	ctx = permit.Context(ctx)
	err = pgx.BeginFunc(ctx, j.db, func(tx pgx.Tx) error {
		var id, account, report string
		err := tx.QueryRow(ctx, "SELECT id, account FROM report_jobs WHERE report IS NULL ORDER BY asked LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id, &account)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // all are being made
		} else if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, heavy, account).Scan(&report); err != nil {
			return err
		}
		made = true
		_, err = tx.Exec(ctx, "UPDATE report_jobs SET report = $2 WHERE id = $1", id, report)
		return err
	})
	if err == nil && made {
		_, err = j.db.Exec(ctx, "DELETE FROM report_jobs WHERE report IS NOT NULL AND asked < now() - $1::interval", keepFor)
	}
	return made && err == nil, err
}
