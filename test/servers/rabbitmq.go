package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RabbitMQ is a running RabbitMQ: one node, with the user "guest" and the password "guest".
type RabbitMQ struct {
	*Daemon
	environment  []string
	distribution int // the port by which nodes, and [RabbitMQ.Eval], reach it
}

// rabbitmqPrograms is where Debian keeps RabbitMQ's own scripts. Those in the PATH change to
// the user rabbitmq and to the files of the system's node.
const rabbitmqPrograms = "/usr/lib/rabbitmq/bin/"

// StartRabbitMQ starts a RabbitMQ without queues, and waits until it serves. It fails the test
// if the program is missing or does not come up. The server is killed when the test and its
// subtests end. Settings are lines of its configuration, such as
// "consumer_timeout = 60000".
//
// The node has a name, a cookie, a home and a port mapper (epmd) of its own, so that it meets
// no other node of this machine.
func StartRabbitMQ(t testing.TB, settings ...string) *RabbitMQ {
	t.Helper()
	for _, program := range []string{rabbitmqPrograms + "rabbitmq-server", "epmd", "erl_call"} {
		if _, err := find(program, "rabbitmq-server"); err != nil {
			t.Fatal(err)
		}
	}
	d := &Daemon{t: t, name: "rabbitmq", dir: t.TempDir()}
	r := &RabbitMQ{Daemon: d, distribution: Port(t)}
	cookie := make([]byte, 16)
	_, _ = rand.Read(cookie) // never fails
	if err := os.WriteFile(filepath.Join(d.dir, ".erlang.cookie"), []byte(hex.EncodeToString(cookie)), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "plugins"), []byte("[].\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mapper := startPortMapper(t)
	configuration := filepath.Join(d.dir, "rabbitmq.conf")
	d.command = func() *exec.Cmd {
		// Its port is another one if the first was taken meanwhile.
		lines := append([]string{
			"listeners.tcp.1 = " + d.Addr(),
			"log.file = false",
			"log.console = true",
			"log.console.level = warning",
			"disk_free_limit.absolute = 1MB",
		}, settings...)
		if err := os.WriteFile(configuration, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.environment = append(os.Environ(),
			"HOME="+d.dir,
			"ERL_EPMD_ADDRESS="+loopback,
			"ERL_EPMD_PORT="+strconv.Itoa(mapper),
			"RABBITMQ_CONF_ENV_FILE="+os.DevNull,
			"RABBITMQ_CONFIG_FILE="+configuration,
			"RABBITMQ_DIST_PORT="+strconv.Itoa(r.distribution),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(d.dir, "plugins"),
			"RABBITMQ_LOG_BASE="+filepath.Join(d.dir, "log"),
			"RABBITMQ_MNESIA_BASE="+filepath.Join(d.dir, "data"),
			fmt.Sprintf("RABBITMQ_NODENAME=headgate-%d@localhost", d.port),
			// Its schedulers sleep as soon as they have nothing to do, as tests mostly wait.
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
			// The script becomes the server, instead of waiting for it: a kill hits the server.
			"detached=yes",
		)
		cmd := exec.Command(rabbitmqPrograms + "rabbitmq-server")
		cmd.Dir, cmd.Env, cmd.SysProcAttr = d.dir, r.environment, attributes()
		return cmd
	}
	d.ready = func(ctx context.Context) error {
		answer, err := d.greet(ctx, "AMQP\x00\x00\x09\x01", 11)
		// A method of channel 0, whatever its length: connection.start.
		if err == nil && (answer[0] != 1 || answer[7:] != "\x00\x0a\x00\x0a") {
			err = errors.New("something that is no RabbitMQ answers on its port")
		}
		return err
	}
	startDaemon(d)
	return r
}

// startPortMapper starts the program by which nodes find each other, and
// returns its port. A node would start one that outlives it.
func startPortMapper(t testing.TB) int {
	t.Helper()
	d := &Daemon{t: t, name: "epmd", dir: t.TempDir()}
	d.command = func() *exec.Cmd {
		cmd := exec.Command("epmd", "-address", loopback, "-port", strconv.Itoa(d.port))
		cmd.Dir, cmd.SysProcAttr = d.dir, attributes()
		return cmd
	}
	d.ready = func(ctx context.Context) error {
		_, err := d.greet(ctx, "", 0)
		return err
	}
	startDaemon(d)
	return d.port
}

// URL is the server's address for clients.
func (r *RabbitMQ) URL() string { return "amqp://guest:guest@" + r.Addr() + "/" }

// Eval has the node evaluate an Erlang expression, such as
// `vm_memory_monitor:set_vm_memory_high_watermark(0.4).`, and returns the result as Erlang writes
// it. It fails the test if that cannot be done. rabbitmqctl does the same, and uses a hundred times
// as much of a processor.
func (r *RabbitMQ) Eval(expression string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "erl_call", "-address", net.JoinHostPort(loopback, strconv.Itoa(r.distribution)), "-e")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = r.dir, r.environment, attributes()
	cmd.Stdin = strings.NewReader(expression + "\n")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	result, ok := strings.CutPrefix(string(out), "{ok, ")
	if err != nil || !ok {
		r.t.Fatalf("servers: evaluating %s: %v:\n%s%s", expression, err, out, problems.Bytes())
	}
	return strings.TrimSuffix(result, "}")
}
