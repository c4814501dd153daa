// Package runner stands in for envoyproxy/ratelimit's own: it runs Headgate with the same
// settings, so that the integration tests of that project ask Headgate.
package runner

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	gostats "github.com/lyft/gostats"

	"github.com/envoyproxy/ratelimit/src/settings"
)

// Runner runs one server.
type Runner struct {
	settings settings.Settings
	stats    gostats.Store
	cmd      *exec.Cmd
	// stopped is closed by Stop, and ended when the server has ended.
	stopped, ended chan struct{}
}

// NewRunner returns a runner. Run starts the server.
func NewRunner(s settings.Settings) Runner {
	return Runner{settings: s, stats: gostats.NewStore(gostats.NewNullSink(), false), stopped: make(chan struct{}), ended: make(chan struct{})}
}

// GetStatsStore returns statistics of which one is kept: how often the configuration was loaded.
func (r *Runner) GetStatsStore() gostats.Store { return r.stats }

// Run runs the server until Stop.
func (r *Runner) Run() {
	defer close(r.ended)
	r.cmd = exec.Command(os.Getenv("HEADGATE_PROGRAM"), "ratelimit")
	r.cmd.Env = append(os.Environ(), environment(&r.settings)...)
	r.cmd.Stdout, r.cmd.Stderr = os.Stdout, os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		panic(err)
	}
	loads := r.stats.NewCounter("ratelimit.service.config_load_success")
	loads.Inc()
	go func() {
		for told := uint64(0); ; time.Sleep(200 * time.Millisecond) {
			select {
			case <-r.stopped:
				return
			default:
			}
			if n, err := r.reloads(); err == nil && n > told {
				loads.Add(n - told)
				told = n
			}
		}
	}()
	if err := r.cmd.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "headgate ended:", err)
	}
}

// reloads is how often a new configuration has taken effect.
func (r *Runner) reloads() (uint64, error) {
	response, err := http.Get("http://localhost:" + strconv.Itoa(r.settings.Port) + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), `headgate_policy_reloads_total{result="changed"} `); ok {
			return strconv.ParseUint(text, 10, 64)
		}
	}
	return 0, lines.Err()
}

// Stop ends the server.
func (r *Runner) Stop() {
	close(r.stopped)
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // It may have ended by itself.
	<-r.ended
}

// environment is what tells a program the settings.
func environment(s *settings.Settings) (env []string) {
	fields := reflect.ValueOf(s).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("envconfig")
		if name == "" {
			continue
		}
		switch v := fields.Field(i).Interface().(type) {
		case []string:
			env = append(env, name+"="+strings.Join(v, ","))
		case map[string]string:
			var pairs []string
			for key, value := range v {
				pairs = append(pairs, key+":"+value)
			}
			env = append(env, name+"="+strings.Join(pairs, ","))
		default:
			env = append(env, fmt.Sprintf("%s=%v", name, v))
		}
	}
	return env
}
