package monitoring

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// story is what servers show for a while, in promtool's notation with one value a minute, and
// the labels of the alert that fires at its end, if one does.
type story struct {
	series map[string]string
	at     string
	fires  []map[string]string
}

// one is the end of a story in which an alert with these labels fires.
func one(pairs ...string) []map[string]string {
	labels := map[string]string{"job": "h"}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return []map[string]string{labels}
}

// Servers that most stories are about.
const (
	a = `job="h", instance="a"`
	b = `job="h", instance="b"`
)

// counts is the story of a counter that counts, and of one that does not.
func counts(metric, more string, labels ...string) []story {
	series := metric + "{" + a + more + "}"
	return []story{
		{map[string]string{series: "0+6x30"}, "20m", one(append([]string{"instance", "a"}, labels...)...)},
		{map[string]string{series: "7+0x30"}, "20m", nil},
	}
}

// is is the story of a gauge that has one value, and of one that has another.
func is(metric, more, firing, silent string, labels ...string) []story {
	series := metric + "{" + a + more + "}"
	return []story{
		{map[string]string{series: firing + "x30"}, "20m", one(append([]string{"instance", "a"}, labels...)...)},
		{map[string]string{series: silent + "x30"}, "20m", nil},
		// One that has just begun may be over in a moment.
		{map[string]string{series: silent + "x19 " + firing + "x10"}, "19m30s", nil},
	}
}

// buckets are those of a histogram of which so many calls a minute are slower than 5, 10 and
// 100 ms, of 10,000.
func buckets(metric, labels string, above5, above10, above100 int) map[string]string {
	series := make(map[string]string)
	for le, n := range map[string]int{"0.005": 10_000 - above5, "0.01": 10_000 - above10, "0.1": 10_000 - above100, "1": 10_000, "+Inf": 10_000} {
		series[fmt.Sprintf(`%s_bucket{%s, le=%q}`, metric, labels, le)] = fmt.Sprintf("0+%dx40", n)
	}
	return series
}

// decisions are those of the rule login: so many a minute for a time, and then so many.
func decisions(allowed, denied, minutes, thenAllowed, thenDenied int) map[string]string {
	line := func(n, then int) string { return fmt.Sprintf("0+%dx%d %d+%dx90", n, minutes, n*minutes, then) }
	return map[string]string{
		`headgate_decisions_total{` + a + `, rule="login", limit="5 per 1m", outcome="allowed"}`: line(allowed, thenAllowed),
		`headgate_decisions_total{` + a + `, rule="login", limit="5 per 1m", outcome="denied"}`:  line(denied, thenDenied),
	}
}

const day = 24 * 60 // minutes

// stories are those of each alert: at least one in which it fires, and one in which it does not.
var stories = map[string][]story{
	"HeadgateNoDecisions":        counts("headgate_requests_without_store_total", `, by="error"`),
	"HeadgateUncounted":          counts("headgate_requests_without_store_total", `, by="open"`),
	"HeadgateLocalMode":          counts("headgate_requests_without_store_total", `, by="local"`),
	"HeadgateDebtsDropped":       counts("headgate_store_debts_dropped_total", ""),
	"HeadgateAsyncReportsFailed": counts("headgate_async_reports_total", `, result="failed"`),
	"HeadgateBreakerOpen": append(is("headgate_store_breaker_state", `, state="open"`, "1", "0"),
		is("headgate_store_breaker_state", `, state="half_open"`, "1", "0")[0],
		is("headgate_store_breaker_state", `, state="closed"`, "1", "0")[1]),
	"HeadgateRegionCutOff": is("headgate_region_cut_off", "", "1", "0"),
	"HeadgateQuotaUnanswered": append(counts("headgate_quota_answers_total", `, kind="failed"`),
		append(counts("headgate_quota_answers_total", `, kind="undivided"`)[:1],
			story{map[string]string{"headgate_quota_answers_total{" + a + `, kind="share"}`: "0+6x30"}, "20m", nil})...),
	"HeadgateRegionFloor":     counts("headgate_region_floor_total", ""),
	"HeadgateDenyCacheDeaf":   is("headgate_deny_cache_listening", "", "0", "1"),
	"HeadgateTargetDown":      is("headgate_gateway_target_up", `, upstream="shop", target="t"`, "0", "1", "upstream", "shop", "target", "t"),
	"HeadgateTokenKeysStale":  is("headgate_gateway_token_keys_last_read_failed", "", "1", "0"),
	"HeadgateCertificateEnds": is("headgate_tls_certificate_expiry_timestamp_seconds", "", "1000000", "2000000"),
	"HeadgateStoreLearning":   {{map[string]string{"headgate_store_learning{" + a + "}": "1x30"}, "20m", one()}, {map[string]string{"headgate_store_learning{" + a + "}": "0x30"}, "20m", nil}},
	"HeadgateReloadFailed": append(append(is("headgate_policy_last_reload_failed", "", "1", "0", "file", "policy"),
		is("headgate_gateway_last_reload_failed", "", "1", "0", "file", "gateway")...),
		is("headgate_candidate_last_reload_failed", "", "1", "0", "file", "candidate")...),
	"HeadgateMemoryShared": {
		{map[string]string{"headgate_memory_shared_total{" + a + "}": "0+6x30", "headgate_memory_merged_total{" + a + "}": "0x30"}, "20m", one("instance", "a")},
		{map[string]string{"headgate_memory_shared_total{" + a + "}": "0x30", "headgate_memory_merged_total{" + a + "}": "0+1x30"}, "20m", one("instance", "a")},
		{map[string]string{"headgate_memory_shared_total{" + a + "}": "5x30", "headgate_memory_merged_total{" + a + "}": "0x30"}, "20m", nil},
	},
	"HeadgateStoreNodeAway": {
		{map[string]string{
			`headgate_store_node_errors_total{` + a + `, node="1", op="take"}`: "0+60x30", `headgate_store_node_duration_seconds_count{` + a + `, node="1", op="take"}`: "0+60x30",
			`headgate_store_node_errors_total{` + a + `, node="2", op="take"}`: "0x30", `headgate_store_node_duration_seconds_count{` + a + `, node="2", op="take"}`: "0+60x30",
		}, "20m", one("node", "1")},
		{map[string]string{
			`headgate_store_node_errors_total{` + a + `, node="1", op="take"}`: "0+6x30", `headgate_store_node_duration_seconds_count{` + a + `, node="1", op="take"}`: "0+60x30",
			// Nothing at all was asked of it.
			`headgate_store_node_errors_total{` + a + `, node="2", op="take"}`: "5x30", `headgate_store_node_duration_seconds_count{` + a + `, node="2", op="take"}`: "7x30",
		}, "20m", nil},
	},
	"HeadgateStoreSlow": {
		{buckets("headgate_store_duration_seconds", a+`, op="take"`, 300, 200, 0), "20m", one("instance", "a")},
		{buckets("headgate_store_duration_seconds", a+`, op="take"`, 300, 50, 0), "20m", nil},
		{buckets("headgate_store_duration_seconds", a+`, op="reset"`, 300, 200, 0), "20m", nil},
	},
	"HeadgateStoreTailSlow": {
		{buckets("headgate_store_node_duration_seconds", a+`, op="take", node="1"`, 300, 50, 20), "30m", one("node", "1")},
		{buckets("headgate_store_node_duration_seconds", a+`, op="take", node="1"`, 300, 50, 5), "30m", nil},
	},
	"HeadgatePoliciesDiffer": {
		{map[string]string{`headgate_policy_info{` + a + `, version="1", hash="x"}`: "1x30", `headgate_policy_info{` + b + `, version="1", hash="y"}`: "1x30"}, "20m", one()},
		{map[string]string{`headgate_policy_info{` + a + `, version="1", hash="x"}`: "1x30", `headgate_policy_info{` + b + `, version="7", hash="x"}`: "1x30"}, "20m", nil},
	},
	"HeadgateCandidateDiffers": {
		{map[string]string{`headgate_candidate_compared_total{` + a + `, outcome="newly_denied"}`: "0+2x60", `headgate_candidate_compared_total{` + a + `, outcome="both_admitted"}`: "0+98x60"}, "50m", one()},
		{map[string]string{`headgate_candidate_compared_total{` + a + `, outcome="newly_denied"}`: "0+2x60", `headgate_candidate_compared_total{` + a + `, outcome="both_admitted"}`: "0+998x60"}, "50m", nil},
		{map[string]string{`headgate_candidate_compared_total{` + a + `, outcome="newly_denied"}`: "7x60", `headgate_candidate_compared_total{` + a + `, outcome="both_admitted"}`: "9x60"}, "50m", nil},
	},
	"HeadgateDenialsAboveUsual": {
		{decisions(99, 1, day, 80, 20), "24h40m", one("rule", "login")},
		// A rule of which half is denied as a rule, and everything now.
		{decisions(50, 50, day, 0, 100), "24h40m", one("rule", "login")},
		{decisions(99, 1, day, 97, 3), "24h40m", nil},
		{decisions(50, 50, day, 40, 60), "24h40m", nil},
		// One request a minute is no traffic to judge by.
		{decisions(1, 0, day, 0, 1), "24h40m", nil},
		// What is usual is not known yet.
		{decisions(80, 20, 30, 0, 100), "50m", nil},
	},
	"HeadgateTrafficUnusual": {
		{decisions(100, 0, day, 500, 0), "24h50m", one("rule", "login")},
		{decisions(100, 0, day, 10, 0), "24h50m", one("rule", "login")},
		{decisions(100, 0, day, 200, 0), "24h50m", nil},
		{decisions(1, 0, day, 100, 0), "24h50m", nil},
	},
	"HeadgatePermitsExhausted": {
		{map[string]string{`headgate_gate_in_progress{` + a + `, gate="db"}`: "20x30", `headgate_gate_limit{` + a + `, gate="db"}`: "20x30"}, "20m", one("instance", "a", "gate", "db")},
		{map[string]string{`headgate_gate_in_progress{` + a + `, gate="db"}`: "19x30", `headgate_gate_limit{` + a + `, gate="db"}`: "20x30"}, "20m", nil},
		{permits(10, 2, "0+6x30"), "20m", one("instance", "a", "rule", "export")},
		{permits(10, 2, "9x30"), "20m", nil},
		{permits(10, 3, "0+6x30"), "20m", nil},
		{permits(0, 0, "0+6x30"), "20m", nil},
	},
	"HeadgateConsumerBehind": {
		{records("0+100x60", "300x60"), "40m", one("topic", "orders")},
		{records("6000-100x60", "300x60"), "40m", nil},
		{records("0+100x60", "10x60"), "40m", nil},
	},
	"HeadgateQueueBehind": {
		{queued("0+100x60", "300x60"), "40m", one()},
		{queued("6000-100x60", "300x60"), "40m", nil},
		{queued("0+100x60", "10x60"), "40m", nil},
	},
	"HeadgateQueueDisconnected": {
		{map[string]string{`headgate_rabbitmq_connected{` + a + `}`: "1x5 0x10"}, "10m", one("instance", "a")},
		{map[string]string{`headgate_rabbitmq_connected{` + a + `}`: "1x5 0 1x10"}, "10m", nil},
	},
	"HeadgatePublisherBlocked": {
		{map[string]string{`headgate_rabbitmq_publisher_blocked{` + a + `}`: "0x5 1x10"}, "10m", one("instance", "a")},
		{map[string]string{`headgate_rabbitmq_publisher_blocked{` + a + `}`: "0x5 1 0x10"}, "10m", nil},
	},
	"HeadgateLimitCollapsed": {
		{limit("100x60 20x60", "0+6x120"), "75m", one("instance", "a", "gate", "db")},
		{limit("100x60 20x60", "9x120"), "75m", nil},   // Nothing is shed: there is less to do.
		{limit("100x60 30x60", "0+6x120"), "75m", nil}, // Not by so much.
		{limit("20x120", "0+6x120"), "75m", nil},       // It always was.
		{limit("100x60 20x180", "0+6x240"), "3h", nil}, // This is what is usual now.
	},
}

// queued are those that wait in a queue, and the age of the one that was delivered last.
func queued(ready, head string) map[string]string {
	return map[string]string{`headgate_rabbitmq_ready_messages{` + a + `}`: ready, `headgate_rabbitmq_head_seconds{` + a + `}`: head}
}

// limit is an adaptive limit, and how many requests were shed.
func limit(is, shed string) map[string]string {
	return map[string]string{`headgate_gate_limit{` + a + `, gate="db"}`: is, `headgate_gate_shed_total{` + a + `, gate="db", class="critical", reason="limit"}`: shed}
}

// permits are those that are held under so many keys with five each, and how many requests
// were refused.
func permits(held, keys int, refused string) map[string]string {
	return map[string]string{
		`headgate_in_progress_permits{` + a + `, rule="export"}`: fmt.Sprintf("%dx30", held), `headgate_in_progress_limit{` + a + `, rule="export"}`: "5x30",
		`headgate_in_progress_keys{` + a + `, rule="export"}`:                                         fmt.Sprintf("%dx30", keys),
		`headgate_in_progress_refused_total{` + a + `, rule="export", reason="busy", shadow="false"}`: refused,
	}
}

// records are the lag and the age of the oldest of one of two partitions.
func records(lag, oldest string) map[string]string {
	return map[string]string{
		`headgate_kafka_lag{` + a + `, topic="orders", partition="0"}`: "3x60", `headgate_kafka_lag{` + b + `, topic="orders", partition="1"}`: lag,
		`headgate_kafka_oldest_seconds{` + a + `, topic="orders", partition="0"}`: "0x60", `headgate_kafka_oldest_seconds{` + b + `, topic="orders", partition="1"}`: oldest,
	}
}

// TestStories has promtool tell each alert its stories. Each story has a job of its own, and all
// stories of a file are one test of promtool, which makes a database and evaluates every rule for
// each test. So every alert also holds its peace about what happens to other jobs.
func TestStories(t *testing.T) {
	rules, err := filepath.Abs(filepath.Join(deployed, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Stories of days are evaluated every ten minutes, all others every minute.
	var files [2]struct{ series, expected strings.Builder }
	names := make(map[string]bool)
	for _, alert := range Alerts() {
		if names[alert.Name] = true; alert.Severity != critical && alert.Severity != warning && alert.Severity != info {
			t.Errorf("%s: severity %q", alert.Name, alert.Severity)
		}
		fires, silent := 0, 0
		for i, s := range stories[alert.Name] {
			file := &files[0]
			if strings.HasPrefix(s.at, "24h") {
				file = &files[1]
			}
			job := fmt.Sprintf("%s %d", alert.Name, i)
			for _, series := range slices.Sorted(maps.Keys(s.series)) {
				fmt.Fprintf(&file.series, "      - { series: '%s', values: '%s' }\n", strings.ReplaceAll(series, `job="h"`, fmt.Sprintf("job=%q", job)), s.series[series])
			}
			fmt.Fprintf(&file.expected, "      - expr: ALERTS{alertname=%q, alertstate=\"firing\", job=%q}\n        eval_time: %s\n", alert.Name, job, s.at)
			if len(s.fires) == 0 {
				silent++
				continue
			}
			fires++
			fmt.Fprintf(&file.expected, "        exp_samples:\n")
			for _, labels := range s.fires {
				line := fmt.Sprintf("ALERTS{alertname=%q, alertstate=\"firing\", severity=%q", alert.Name, alert.Severity)
				if alert.Follows {
					line += fmt.Sprintf(", follows=%q", root)
				}
				for name, value := range labels {
					if name == "job" {
						value = job
					}
					line += fmt.Sprintf(", %s=%q", name, value)
				}
				fmt.Fprintf(&file.expected, "          - { labels: '%s}', value: 1 }\n", line)
			}
		}
		if fires == 0 || silent == 0 {
			t.Errorf("%s fires in %d stories and is silent in %d; both are to be shown", alert.Name, fires, silent)
		}
	}
	for name := range stories {
		if !names[name] {
			t.Errorf("there are stories of %s, which is no alert", name)
		}
	}
	args := []string{"test", "rules"}
	for i, interval := range []string{"1m", "10m"} {
		args = append(args, filepath.Join(t.TempDir(), fmt.Sprintf("stories-%d.yaml", i)))
		text := fmt.Sprintf("rule_files: [%q]\nevaluation_interval: %s\ntests:\n  - interval: 1m\n    input_series:\n%s    promql_expr_test:\n%s", rules, interval, &files[i].series, &files[i].expected)
		if err := os.WriteFile(args[len(args)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Fatalf("promtool, which scripts/install-test-programs installs: %v\n%s", err, out)
	}
}

// TestTexts: a text names no label that its alert does not have, and the runbook has a section
// for each alert.
func TestTexts(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, alert := range Alerts() {
		has := make(map[string]bool)
		for _, s := range stories[alert.Name] {
			for _, labels := range s.fires {
				for name := range labels {
					has[name] = true
				}
			}
		}
		for _, found := range label.FindAllStringSubmatch(alert.Summary+alert.Description, -1) {
			if !has[found[1]] {
				t.Errorf("%s names the label %s, which no story has", alert.Name, found[1])
			}
		}
		if !strings.Contains(string(page), "\n### "+alert.Name+"\n") {
			t.Errorf("docs/runbook.md has no section %s", alert.Name)
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^### (Headgate\w+)$`).FindAllStringSubmatch(string(page), -1) {
		if !slices.ContainsFunc(Alerts(), func(a Alert) bool { return a.Name == found[1] }) {
			t.Errorf("docs/runbook.md has a section %s, which is no alert", found[1])
		}
	}
}
