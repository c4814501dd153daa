package monitoring

// Alert is an alert rule of Prometheus. Its section in the runbook is headed by its name.
type Alert struct {
	Name string
	// Expr may span several lines.
	Expr string
	// For is how long Expr holds before the alert fires, such as "5m".
	For string
	// Severity is "critical" (wake somebody), "warning" (look at it today) or "info".
	Severity string
	// Summary and Description may use Prometheus's templates, such as {{ $labels.rule }}.
	Summary, Description string
	// Follows says that the alert follows from [root] while that one fires: it has a label that says
	// so, by which Alertmanager holds it back.
	Follows bool
}

// root is the alert for a store that does not answer. Whatever else fires meanwhile has no other cause.
const root = "HeadgateBreakerOpen"

// Recording is a recording rule, which alerts refer to.
type Recording struct{ Name, Expr string }

// Recordings are what is usual: alerts compare the present with it.
func Recordings() []Recording {
	return []Recording{
		{"headgate:rule_decisions:rate10m", `sum by (job, rule) (rate(headgate_decisions_total[10m]))`},
		{"headgate:rule_denied:ratio10m", `sum by (job, rule) (rate(headgate_decisions_total{outcome="denied"}[10m]))
  / (sum by (job, rule) (rate(headgate_decisions_total[10m])) > 0)`},
		// The same hour a week ago, or of the day before where there is no such week yet.
		{"headgate:rule_decisions:usual", `avg_over_time(headgate:rule_decisions:rate10m[1h] offset 167h30m)
  or avg_over_time(headgate:rule_decisions:rate10m[1h] offset 23h30m)`},
		{"headgate:rule_denied:usual", `avg_over_time(headgate:rule_denied:ratio10m[1d] offset 1h)`},
	}
}

const (
	critical = "critical"
	warning  = "warning"
	info     = "info"
)

// Alerts are all alert rules, the most urgent first.
func Alerts() []Alert {
	return []Alert{
		{
			"HeadgateBreakerOpen", `max by (job, instance) (headgate_store_breaker_state{state=~"open|half_open"}) == 1`, "1m", critical,
			"The store does not answer {{ $labels.instance }}",
			"Calls to the store failed, and the circuit breaker is open. Each rule does what its on_store_error says; the page Now of the dashboard has a sentence for each. Alerts with the label follows have this cause.",
			false,
		},
		{
			"HeadgateNoDecisions", `sum by (job, instance) (rate(headgate_requests_without_store_total{by="error"}[5m])) > 0`, "2m", critical,
			"Requests get no decision on {{ $labels.instance }}",
			"The store does not answer, and {{ $value | humanize }} requests a second get 503.",
			true,
		},
		{
			"HeadgateUncounted", `sum by (job, instance) (rate(headgate_requests_without_store_total{by="open"}[5m])) > 0`, "2m", critical,
			"Requests are let in uncounted on {{ $labels.instance }}",
			"The store does not answer, and the rules of {{ $value | humanize }} requests a second say on_store_error: allow.",
			true,
		},
		{
			"HeadgateStoreNodeAway", `sum by (job, node) (rate(headgate_store_node_errors_total[2m]))
  / (sum by (job, node) (rate(headgate_store_node_duration_seconds_count[2m])) > 0)
> 0.5`, "1m", critical,
			"The store's node {{ $labels.node }} does not answer",
			"{{ $value | humanizePercentage }} of the calls to this node fail. Keys on other nodes of a cluster are counted as before.",
			true,
		},
		{
			"HeadgateLocalMode", `sum by (job, instance) (rate(headgate_requests_without_store_total{by="local"}[5m])) > 0`, "2m", warning,
			"{{ $labels.instance }} decides by its own share of the limits",
			"The store does not answer, and {{ $value | humanize }} requests a second are decided locally.",
			true,
		},
		{
			"HeadgateRegionCutOff", `max by (job, instance) (headgate_region_cut_off) == 1`, "1m", warning,
			"{{ $labels.instance }} cannot ask the home of regions",
			"The home is silent. What is lent to the region ends with its lease; then it has its own part of each global limit.",
			false,
		},
		{
			"HeadgateRegionFloor", `sum by (job, instance) (rate(headgate_region_floor_total[5m])) > 0`, "2m", warning,
			"{{ $labels.instance }} has only its own part of global limits",
			"The lease of the region has ended, and {{ $value | humanize }} checks a second were decided by its own part.",
			false,
		},
		{
			"HeadgateQuotaUnanswered", `sum by (job, instance) (rate(headgate_quota_answers_total{kind=~"failed|undivided"}[5m])) > 0`, "2m", warning,
			"{{ $labels.instance }} assigns Envoys no shares",
			"{{ $value | humanize }} buckets a second get no answer. Their Envoys deny, or admit, as their own configuration says, when what they have has ended.",
			true,
		},
		{
			"HeadgateDebtsDropped", `sum by (job, instance) (increase(headgate_store_debts_dropped_total[10m])) > 0`, "0m", warning,
			"{{ $labels.instance }} forgets what it admitted locally",
			"{{ $value | humanize }} local admissions will not be charged to the store, because too many keys have some.",
			true,
		},
		{
			"HeadgateStoreLearning", `max by (job) (headgate_store_learning) == 1`, "0m", warning,
			"The store has lost its data",
			"Counters began anew. Until the learning period ends, each server enforces its share as well.",
			true,
		},
		{
			"HeadgateStoreSlow", `histogram_quantile(0.99, sum by (job, instance, le) (rate(headgate_store_duration_seconds_bucket{op="take"}[5m]))) > 0.01`, "10m", warning,
			"The store is slow for {{ $labels.instance }}",
			"One decision in a hundred takes {{ $value | humanizeDuration }} or longer.",
			true,
		},
		{
			"HeadgateStoreTailSlow", `histogram_quantile(0.999, sum by (job, node, le) (rate(headgate_store_node_duration_seconds_bucket[10m]))) > 0.1`, "10m", warning,
			"Some calls to the store's node {{ $labels.node }} are slow",
			"One call in a thousand takes {{ $value | humanizeDuration }} or longer. By default, a call is given up after 500 ms, and Envoy waits for 20 ms.",
			true,
		},
		{
			"HeadgateAsyncReportsFailed", `sum by (job, instance) (rate(headgate_async_reports_total{result="failed"}[5m])) > 0`, "5m", warning,
			"{{ $labels.instance }} cannot report what it admitted",
			"Rules with consistency: async admit more than their limits while reports fail.",
			true,
		},
		{
			"HeadgateDenyCacheDeaf", `min by (job, instance) (headgate_deny_cache_listening) == 0`, "5m", warning,
			"{{ $labels.instance }} does not hear of resets by other servers",
			"It finds out by itself within ten seconds. If the store answers, its user usually lacks a permission.",
			true,
		},
		{
			"HeadgateMemoryShared", `sum by (job, instance) (increase(headgate_memory_shared_total[10m]) + increase(headgate_memory_merged_total[10m])) > 0`, "0m", warning,
			"Clients share counters on {{ $labels.instance }}",
			"Memory for counters is full. Clients that share a counter are denied earlier than their limits say.",
			false,
		},
		{
			"HeadgateReloadFailed", `label_replace(headgate_policy_last_reload_failed == 1, "file", "policy", "", "")
  or label_replace(headgate_gateway_last_reload_failed == 1, "file", "gateway", "", "")
  or label_replace(headgate_candidate_last_reload_failed == 1, "file", "candidate", "", "")`, "1m", warning,
			"The {{ $labels.file }} file on {{ $labels.instance }} has mistakes",
			"What was in force before stays in force. The log has every mistake with its line.",
			false,
		},
		{
			"HeadgatePoliciesDiffer", `count by (job) (count by (job, hash) (headgate_policy_info)) > 1`, "10m", warning,
			"Servers of {{ $labels.job }} have different policies",
			"{{ $value }} policies are in force at the same time.",
			false,
		},
		{
			"HeadgateCertificateEnds", `headgate_tls_certificate_expiry_timestamp_seconds - time() < 14 * 86400`, "10m", warning,
			"The certificate of {{ $labels.instance }} ends soon",
			"It ends in {{ $value | humanizeDuration }}.",
			false,
		},
		{
			"HeadgateDenialsAboveUsual", `(
  headgate:rule_denied:ratio10m > 3 * headgate:rule_denied:usual
  or headgate:rule_denied:ratio10m > (1 + headgate:rule_denied:usual) / 2
)
and headgate:rule_denied:ratio10m > 0.05
and headgate:rule_decisions:rate10m > 0.1`, "5m", warning,
			"The rule {{ $labels.rule }} denies more than usual",
			"{{ $value | humanizePercentage }} of its decisions are denials.",
			true,
		},
		{
			"HeadgateTrafficUnusual", `(
  headgate:rule_decisions:rate10m / (headgate:rule_decisions:usual > 0.1) > 3
  or headgate:rule_decisions:rate10m / (headgate:rule_decisions:usual > 0.1) < 0.25
)`, "15m", info,
			"The traffic of the rule {{ $labels.rule }} is far off its usual",
			"It is {{ $value | humanize }} times that of the same hour a week ago, or a day ago if there is no such week.",
			true,
		},
		{
			"HeadgateCandidateDiffers", `sum by (job) (rate(headgate_candidate_compared_total{outcome=~"newly_denied|newly_admitted"}[15m]))
  / (sum by (job) (rate(headgate_candidate_compared_total[15m])) > 0)
> 0.01`, "15m", info,
			"The candidate decides otherwise",
			"{{ $value | humanizePercentage }} of the requests would be decided otherwise than by the policy in force.",
			false,
		},
		{
			"HeadgatePermitsExhausted", `headgate_gate_in_progress >= headgate_gate_limit > 0
or (
  headgate_in_progress_permits >= headgate_in_progress_limit * headgate_in_progress_keys > 0
  and on (job, instance, rule)
  sum by (job, instance, rule) (rate(headgate_in_progress_refused_total{shadow="false"}[5m])) > 0
)`, "5m", warning,
			"All permits of {{ $labels.gate }}{{ $labels.rule }} on {{ $labels.instance }} are taken",
			"{{ $value | humanize }} are in progress, which is the bound, and have been for five minutes.",
			false,
		},
		{
			"HeadgateTargetDown", `headgate_gateway_target_up == 0`, "2m", warning,
			"The target {{ $labels.target }} is not used",
			"The gateway {{ $labels.instance }} passes over a target of the upstream {{ $labels.upstream }}, which is down or fails.",
			false,
		},
		{
			"HeadgateTokenKeysStale", `headgate_gateway_token_keys_last_read_failed == 1`, "10m", warning,
			"{{ $labels.instance }} cannot read the keys of tokens",
			"The keys that were read last stay in force. Tokens signed with newer ones are refused.",
			false,
		},
		{
			"HeadgateConsumerBehind", `max by (job, topic) (headgate_kafka_oldest_seconds) > 60
and sum by (job, topic) (headgate_kafka_lag) > sum by (job, topic) (headgate_kafka_lag offset 15m)`, "5m", warning,
			"Consumers of {{ $labels.topic }} fall behind",
			"The oldest record in work is {{ $value | humanizeDuration }} old, and the lag is larger than a quarter of an hour ago.",
			false,
		},
		{
			"HeadgateQueueBehind", `max by (job) (headgate_rabbitmq_head_seconds) > 60
and max by (job) (headgate_rabbitmq_ready_messages) > max by (job) (headgate_rabbitmq_ready_messages offset 15m)`, "5m", warning,
			"The consumers of {{ $labels.job }} fall behind",
			"The message that was delivered last is {{ $value | humanizeDuration }} old, and more wait in the queue than a quarter of an hour ago.",
			false,
		},
		{
			"HeadgateQueueDisconnected", `headgate_rabbitmq_connected == 0`, "2m", warning,
			"{{ $labels.instance }} has no connection to RabbitMQ",
			"It consumes nothing, and goes on trying to connect.",
			false,
		},
		{
			"HeadgatePublisherBlocked", `headgate_rabbitmq_publisher_blocked == 1`, "2m", warning,
			"RabbitMQ takes no messages from {{ $labels.instance }}",
			"The broker is short of memory or disk, and blocks those who publish.",
			false,
		},
		{
			"HeadgateLimitCollapsed", `headgate_gate_limit < 0.25 * max_over_time(headgate_gate_limit[1h] offset 10m)
and on (job, instance, gate)
sum by (job, instance, gate) (rate(headgate_gate_shed_total[5m])) > 0`, "10m", warning,
			"The adaptive limit of {{ $labels.gate }} on {{ $labels.instance }} has fallen",
			"The gate lets {{ $value | humanize }} be in progress, less than a quarter of its highest limit in the hour before, and sheds requests: what is behind it has become slower.",
			false,
		},
	}
}
