package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/headgate/headgate/server/app"
)

func Example() {
	service, err := app.New(context.Background(), app.Settings{Listen: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- service.Serve(ctx) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + service.Addr("http").String() + "/readyz")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Print(response.Status, " ", string(body))

	stop()
	fmt.Println(<-ended)
	// Output:
	// 200 OK {"status":"ready"}
	// <nil>
}
