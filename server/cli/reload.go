package cli

import (
	"os"
	"sync"

	"github.com/headgate/headgate/server/app"
)

// reloadOn has the service reload its policy whenever a signal comes, until the
// function that it returns is called.
func reloadOn(hangups <-chan os.Signal, service *app.App) (stop func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-hangups:
				// What is wrong stands in the log, for there is nobody else to tell.
				_ = service.Reload("SIGHUP")
			}
		}
	})
	return func() {
		close(done)
		waiting.Wait()
	}
}
