package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/headgate/headgate/server/app"
)

// maxTokenFile is more than any file with a token in it has.
const maxTokenFile = 4 << 10

// adminToken reads the token from the file or, without one, the environment: a
// flag would show it to every user of the machine.
func adminToken(file string) (string, error) {
	token := os.Getenv("HEADGATE_ADMIN_TOKEN")
	if file == "" {
		return token, nil
	}
	if token != "" {
		return "", usage("HEADGATE_ADMIN_TOKEN and a file with an admin token are both given", "leave one of them out")
	}
	const hint = "the file has the token, and nothing else, on one line"
	info, err := os.Stat(file)
	if err != nil {
		return "", usage("the admin token cannot be read: "+plain(err), hint)
	}
	if info.Mode().IsRegular() && info.Size() > maxTokenFile {
		return "", usage(fmt.Sprintf("the file with the admin token, %s, has %d bytes, must have at most %d", file, info.Size(), maxTokenFile), hint)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usage("the admin token cannot be read: "+plain(err), hint)
	}
	token = strings.TrimRight(string(text), "\r\n")
	if token == "" {
		return "", usage("the file with the admin token, "+file+", is empty", hint)
	}
	return token, nil
}

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
