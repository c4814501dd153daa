package servers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Kafka is a running Apache Kafka: one process that is broker and controller.
type Kafka struct{ *Daemon }

// kafkaTool is the directory in bin/tools that holds Kafka's classes.
const kafkaTool = "kafka-4.1.0"

// StartKafka starts a Kafka without topics, and waits until it serves. It fails the test
// if Java or Kafka's classes are missing or it does not come up. The server is killed when
// the test and its subtests end. Settings are lines of its configuration, such as
// "message.max.bytes=100000".
func StartKafka(t testing.TB, settings ...string) *Kafka {
	t.Helper()
	java, err := find("java", "default-jdk-headless")
	if err != nil {
		t.Fatal(err)
	}
	classes, err := tool(kafkaTool)
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, name: "kafka", dir: t.TempDir()}
	controller := Port(t)
	properties := filepath.Join(d.dir, "server.properties")
	run := func(ctx context.Context, heap, class string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, java, append([]string{
			heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes + "/*", class,
		}, args...)...)
		cmd.Dir, cmd.SysProcAttr = d.dir, attributes()
		return cmd
	}
	formatted := false
	d.command = func() *exec.Cmd {
		// Its port is another one if the first was taken meanwhile.
		text := kafkaProperties(d.dir, d.Addr(), controller, settings)
		if err := os.WriteFile(properties, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if !formatted {
			id := make([]byte, 16)
			_, _ = rand.Read(id) // never fails
			id[0] = 0            // as text, it begins with A: what begins with a dash is taken for an option
			format := run(Bounded(t), "-Xmx128m", "kafka.tools.StorageTool", "format",
				"-t", base64.RawURLEncoding.EncodeToString(id), "-c", properties)
			if out, err := format.CombinedOutput(); err != nil {
				t.Fatalf("servers: formatting Kafka's storage: %v:\n%s", err, out)
			}
			formatted = true
		}
		return run(context.Background(), "-Xmx512m", "kafka.Kafka", properties)
	}
	d.ready = func(ctx context.Context) error {
		// Its length; ApiVersions, version 0; a mark that the answer repeats; no name of a client.
		answer, err := d.greet(ctx, "\x00\x00\x00\x0a\x00\x12\x00\x00head\xff\xff", 8)
		if err == nil && answer[4:] != "head" {
			err = errors.New("something that is no Kafka answers on its port")
		}
		return err
	}
	startDaemon(d)
	return &Kafka{d}
}

// tool is a directory in bin/tools, which scripts/install-test-programs has filled.
func tool(name string) (string, error) {
	top, err := above(filepath.Join("bin", "tools", name))
	if err != nil {
		return "", fmt.Errorf("servers: %w: run `make test`, which installs it, or scripts/install-test-programs", err)
	}
	return filepath.Join(top, "bin", "tools", name), nil
}

func kafkaProperties(dir, addr string, controller int, settings []string) string {
	quorum := fmt.Sprintf("%s:%d", loopback, controller)
	lines := append([]string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@" + quorum,
		"listeners=PLAINTEXT://" + addr + ",CONTROLLER://" + quorum,
		"advertised.listeners=PLAINTEXT://" + addr,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs=" + filepath.Join(dir, "data"),
		"auto.create.topics.enable=false",
		"default.replication.factor=1",
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=1000",
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}
