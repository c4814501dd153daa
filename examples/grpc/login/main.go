// Command login asks a Headgate server before it checks a password, and says afterwards
// whether the password was right: only failures count.
//
//	go run ./examples/grpc/login -headgate 127.0.0.1:9090
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
)

func main() {
	server := flag.String("headgate", "127.0.0.1:9090", "`address` of a Headgate server's gRPC")
	timeout := flag.Duration("timeout", client.DefaultTimeout, "how long the server may take to answer")
	flag.Parse()
	if err := run(*server, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server string, timeout time.Duration) error {
	c, err := client.New(server, client.Plaintext(), client.Timeout(timeout))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	// Two logins that succeed, and a guesser.
	for _, password := range []string{"correct", "correct", "1", "2", "3", "4", "5", "6"} {
		said, err := login(ctx, c, "ada", password)
		if err != nil {
			return err
		}
		fmt.Printf("%-7s %s\n", password, said)
	}
	return nil
}

// login checks a password, if the rules let it.
func login(ctx context.Context, c *client.Client, user, password string) (string, error) {
	attempt, err := c.Reserve(ctx, &headgatev1.ReserveRequest{Entries: map[string]string{
		"route": "POST /login", "ip": "203.0.113.10", "user": user,
	}})
	if err != nil {
		return "", err // Nobody decided. To check the password without a limit would help a guesser.
	}
	if v := attempt.GetVerdict(); !v.GetAllowed() {
		wait := time.Duration(v.GetRetryAfterMs()) * time.Millisecond
		return fmt.Sprintf("too many failures; try again in %v", wait.Round(time.Minute)), nil
	}
	status := http.StatusOK
	if password != "correct" {
		status = http.StatusUnauthorized
	}
	_, err = c.Settle(ctx, &headgatev1.SettleRequest{Reservation: attempt.GetReservation(), Status: int32(status)})
	return http.StatusText(status), err
}
