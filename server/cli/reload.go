package cli

import (
	"os"
	"sync"

	"github.com/headgate/headgate/server/app"
)

// reloadOn makes the service reload its policy whenever a signal comes, until stop is called.
func reloadOn(hangups <-chan os.Signal, service *app.App) (stop func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-hangups:
				// Reload logs its errors, and nobody else can be told.
				_ = service.Reload("SIGHUP")
			}
		}
	})
	return func() {
		close(done)
		waiting.Wait()
	}
}
