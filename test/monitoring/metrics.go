package monitoring

// Metric is a metric as the reference page tells of it. Its type, its help text and its labels
// are not here: they are what real programs show.
type Metric struct {
	Name string
	// Values are all values of the labels that have few.
	Values map[string][]string
	// More is what there is to say beyond the help text, in Markdown.
	More string
}

// Group is a section of the reference page.
type Group struct {
	Title, About string
	Metrics      []Metric
}

// Labels are the labels that have any number of values, and what they are.
func Labels() [][2]string {
	return [][2]string{
		{"descriptor", "the values of a descriptor of Envoy, by which its limit is measured"},
		{"entry", "the name of an entry of a list"},
		{"file", "a policy file"},
		{"gate", "the name that a gate was given; in the gateway that of the upstream"},
		{"gen_ai_request_model", "a model, as `model`"},
		{"go", "the version of Go that the program was built with"},
		{"hash", "the hash of the policy file, by which instances are compared"},
		{"limit", "the limit, as `20 per 1m`"},
		{"model", "the entry of the policy's `models` that counts for a model, as `gpt-5*`, or `other`; at most 200"},
		{"node", "a server of the store, as host and port"},
		{"partition", "the number of a partition"},
		{"rule", "the name of a rule"},
		{"target", "a server of an upstream, as the gateway file names it"},
		{"topic", "the name of a topic"},
		{"upstream", "the name of an upstream"},
		{"version", "the version of the program, or the number of a policy since the start"},
	}
}

// values are those of one label.
func values(label string, all ...string) map[string][]string { return map[string][]string{label: all} }

// doors are what the label door may be.
func doors() []string {
	return []string{"http", "grpc", "grpc-store", "envoy", "ext-authz", "ext-proc", "resp", "forward-auth", "gateway"}
}

// Values of labels that several metrics have.
var (
	ops         = []string{"take", "peek", "refund", "reset", "charge"}
	nodeOps     = []string{"take", "refund", "reset", "reserve", "sweep", "acquire", "renew", "release", "revoke", "holders", "publish", "ping", "read a document", "write a document"}
	reloads     = values("result", "changed", "unchanged", "failed")
	classes     = []string{"critical_plus", "critical", "sheddable_plus", "sheddable"}
	shedReasons = []string{"busy", "queue_full", "displaced", "waited", "late", "pressure", "too_large", "keys", "rate"}
)

// reloaded are the metrics of a file that is read again, by the prefix of their names.
func reloaded(prefix string) []Metric {
	return []Metric{
		{prefix + "_info", nil, ""},
		{prefix + "_reloads_total", reloads, ""},
		{prefix + "_last_reload_success_timestamp_seconds", nil, "It moves, too, when the file was found unchanged."},
		{prefix + "_last_reload_failed", nil, ""},
	}
}

// Groups are all metrics.
func Groups() []Group {
	return []Group{
		{"Requests and decisions", "A request may meet several limits. It counts once in `headgate_requests_total`, and once for each limit in `headgate_decisions_total`.", []Metric{
			{"headgate_requests_total", map[string][]string{"outcome": {"admitted", "denied", "listed", "error"}, "door": doors()}, "Peeks, refunds and resets are not among them."},
			{"headgate_request_duration_seconds", values("door", doors()...), "Buckets from 10 µs to 1 s."},
			{"headgate_requests_waiting", values("door", doors()...), ""},
			{"headgate_decisions_total", values("outcome", "allowed", "denied", "uncharged", "shadow_denied"), ""},
			{"headgate_decisions_by_source_total", values("source", "store", "deny_cache", "lease", "async", "local", "open"), ""},
			{"headgate_rule_checks_total", values("outcome", "allowed", "denied", "shadow", "uncharged", "failed"), "A rule that nobody uses for two hours is forgotten, and begins at zero."},
			{"headgate_rule_checks_without_store_total", values("by", "open", "local"), ""},
			{"headgate_limit_units", nil, ""},
			{"headgate_limit_period_seconds", nil, ""},
			{"headgate_soft_total", nil, ""},
			{"headgate_list_hits_total", values("list", "allow", "deny"), ""},
			{
				"headgate_permit_calls_total",
				map[string][]string{"outcome": {"allowed", "denied", "waiting", "shadow", "open", "renewed", "not_held", "revoked", "released", "listed", "refused", "unavailable", "gone"}, "call": {"acquire", "renew", "release", "holders", "revoke"}},
				"Calls of [other programs](../permits.md#from-programs-in-other-languages). There are series for what has happened.",
			},
		}},
		{"The policy", "A file with mistakes changes nothing: what was in force stays.", reloaded("headgate_policy")},
		{"Shares for Envoys", "[Envoys that do not ask](../envoy-quota.md).", []Metric{
			{"headgate_quota_streams", nil, ""},
			{"headgate_quota_answers_total", values("kind", "share", "allow_all", "deny_all", "undivided", "failed"), ""},
		}},
		{"Language models behind Envoys", "[Envoys with ext_proc](../language-models.md#in-envoy).", []Metric{
			{"headgate_ext_proc_streams", nil, ""},
			{"headgate_ext_proc_settlements_total", values("result", "settled", "estimated", "late", "failed"), ""},
		}},
		{"A candidate", "Shown while a [candidate](../operations.md#trying-a-candidate) is tried.", append([]Metric{
			{"headgate_candidate_compared_total", values("outcome", "both_admitted", "both_denied", "newly_denied", "newly_admitted", "undecidable"), ""},
			{"headgate_candidate_differences_total", values("kind", "newly_denied", "newly_admitted", "undecidable"), "`rule` or `entry` is empty."},
			{"headgate_candidate_not_compared_total", values("reason", "dropped", "undecided", "unanswered"), ""},
			{"headgate_candidate_waiting", nil, ""},
		}, reloaded("headgate_candidate")...)},
		{"Calls to the store", "Every store has the first two. Those with `node` are of Redis and Valkey: calls as they leave, of which one may carry many decisions.", []Metric{
			{"headgate_store_duration_seconds", values("op", ops...), "Buckets from 10 µs to 1 s."},
			{"headgate_store_errors_total", map[string][]string{"op": ops, "reason": {"unavailable", "invalid", "canceled", "other"}}, "`canceled`: the caller went away."},
			{"headgate_store_node_duration_seconds", values("op", nodeOps...), "Peeks and settlements count as `take`, and `publish` is what servers tell each other. 46 buckets from 50 µs to 1.2 s, good for p99.9, and a native histogram for servers that scrape those."},
			{"headgate_store_node_errors_total", values("op", nodeOps...), ""},
		}},
		{"While the store does not answer", "Shown with a store across a network. [When the store fails](../failures.md) explains what they count.", []Metric{
			{"headgate_store_breaker_state", values("state", "closed", "open", "half_open"), ""},
			{"headgate_store_breaker_opened_total", nil, ""},
			{"headgate_store_failures_total", nil, ""},
			{"headgate_store_probes_total", values("result", "answered", "failed"), ""},
			{"headgate_requests_without_store_total", values("by", "error", "open", "local"), ""},
			{"headgate_instances", nil, ""},
			{"headgate_store_learning", nil, ""},
			{"headgate_store_debts", nil, ""},
			{"headgate_store_debts_dropped_total", nil, ""},
			{"headgate_store_handed_back_units_total", nil, ""},
		}},
		{"Fewer calls to the store", "Shown with a store across a network. [Fewer calls to the store](../consistency.md) explains leases, asynchronous counting and remembered denials.", []Metric{
			{"headgate_lease_keys", nil, ""},
			{"headgate_lease_held_units", nil, ""},
			{"headgate_leases_total", nil, ""},
			{"headgate_lease_served_total", nil, ""},
			{"headgate_lease_units_total", values("what", "taken", "returned", "refilled", "lost"), "`lost`: a call failed, or a key was reset."},
			{"headgate_async_keys", nil, ""},
			{"headgate_async_unreported_units", nil, ""},
			{"headgate_async_checks_total", values("by", "memory", "store"), ""},
			{"headgate_async_reports_total", values("result", "answered", "failed"), ""},
			{"headgate_deny_cache_keys", nil, ""},
			{"headgate_deny_cache_keys_told_total", values("result", "sent", "dropped"), "They find out by themselves within ten seconds."},
			{"headgate_deny_cache_messages_total", values("result", "heard", "unknown"), ""},
			{"headgate_deny_cache_listening", nil, ""},
		}},
		{"Regions", "Shown with `--region`. [One limit over regions](../regions.md) explains shares.", []Metric{
			{"headgate_region_cut_off", nil, ""},
			{"headgate_region_keys", nil, ""},
			{"headgate_region_lent_keys", nil, ""},
			{"headgate_region_home_calls_total", nil, ""},
			{"headgate_region_home_failures_total", nil, ""},
			{"headgate_region_floor_total", nil, ""},
			{"headgate_region_late_total", nil, ""},
			{"headgate_region_untracked_total", nil, ""},
		}},
		{"Counters in memory", "Of the memory store, or of this process's shares of limits.", []Metric{
			{"headgate_memory_counters", nil, ""},
			{"headgate_memory_bytes", nil, ""},
			{"headgate_memory_max_bytes", nil, "The flag `--memory`."},
			{"headgate_memory_shared_total", nil, ""},
			{"headgate_memory_merged_total", nil, ""},
		}},
		{"Doors", "Each is shown by a server that has the door.", []Metric{
			{"headgate_grpc_store_requests_total", values("outcome", "allowed", "denied"), "See [a server in the place of Redis](../grpc.md#a-server-in-the-place-of-redis)."},
			{"headgate_resp_connections", nil, ""},
			{"headgate_resp_connections_refused_total", nil, ""},
			{"headgate_resp_throttle_decisions_total", values("outcome", "allowed", "denied"), "No label names the limits, of which callers may bring any number."},
			{"headgate_envoy_units_total", values("result", "within", "over", "over_in_shadow"), "See [Envoy](../envoy.md)."},
		}},
		{"The gateway", "", append([]Metric{
			{
				"headgate_gateway_requests_total",
				map[string][]string{"outcome": {"passed", "open", "denied", "listed", "shed", "refused", "unavailable", "unanswered", "client_gone", "broken"}, "status": {"none", "1xx", "2xx", "3xx", "4xx", "5xx"}},
				"`open`: passed on without a decision. `broken`: a defect. There are series for what has happened.",
			},
			{"headgate_gateway_answers_total", values("status", "1xx", "2xx", "3xx", "4xx", "5xx"), ""},
			{"headgate_gateway_requests_in_flight", nil, ""},
			{"headgate_gateway_connections", nil, ""},
			{"headgate_gateway_connections_refused_total", nil, ""},
			{"headgate_gateway_upgraded_connections", nil, ""},
			{"headgate_gateway_settlements_total", values("result", "settled", "estimated", "late", "failed"), "`estimated`: the cost was never reported. `late`: charged after the reservation had expired."},
			{"headgate_gateway_target_up", nil, ""},
			{"headgate_gateway_target_requests_total", nil, ""},
			{"headgate_gateway_target_failures_total", nil, ""},
			{"headgate_gateway_target_requests_in_flight", nil, ""},
			{"headgate_gateway_token_keys_last_read_timestamp_seconds", nil, ""},
			{"headgate_gateway_token_keys_last_read_failed", nil, ""},
		}, reloaded("headgate_gateway")...)},
		{"Calls to language models", "Of the gateway, and of what programs [settle](../language-models.md#without-the-gateway) themselves. Calls that no rule binds are not counted.", []Metric{
			{"gen_ai_client_token_usage", values("gen_ai_token_type", "input", "output"), "OpenTelemetry's `gen_ai.client.token.usage`."},
			{"gen_ai_client_operation_time_to_first_chunk_seconds", nil, "OpenTelemetry's `gen_ai.client.operation.time_to_first_chunk`; in the gateway only."},
			{"headgate_llm_money_total", nil, ""},
			{"headgate_llm_charged_total", map[string][]string{"counts": {"input_tokens", "output_tokens", "tokens", "money"}, "by": {"usage", "estimate"}}, ""},
		}},
		{"What is in progress", "Of rules with [`in_progress`](../rules.md#what-is-in-progress), in the gateway and where a program registers `prom.InProgress`. A rule that has left the policy keeps its series until nothing is in progress under it.", []Metric{
			{"headgate_in_progress_permits", nil, ""},
			{"headgate_in_progress_limit", nil, ""},
			{"headgate_in_progress_keys", nil, ""},
			{"headgate_in_progress_waiting", nil, ""},
			{"headgate_in_progress_refused_total", map[string][]string{"reason": shedReasons, "shadow": {"true", "false"}}, "There are series for what has happened."},
			{"headgate_in_progress_wait_seconds", nil, "There is a series once a request has waited."},
			{"headgate_in_progress_lost_total", nil, "Only of rules with `shared: true`."},
		}},
		{"Gates", "Of an upstream with `load` in the gateway, and of the [gates of a Go program](../flow.md) that registers `prom.Gates`.", []Metric{
			{"headgate_gate_limit", nil, ""},
			{"headgate_gate_in_progress", nil, ""},
			{"headgate_gate_waiting", nil, ""},
			{"headgate_gate_base_seconds", nil, "Only of gates with an adaptive limit."},
			{"headgate_gate_pressure", nil, "Only of gates that look at it."},
			{"headgate_gate_admitted_total", values("class", classes...), ""},
			{"headgate_gate_shed_total", map[string][]string{"class": classes, "reason": shedReasons}, "There are series for what has happened."},
			{"headgate_gate_done_total", values("outcome", "ignore", "success", "overload", "unused", "canceled"), ""},
		}},
		{"Consumers of Kafka", "Where a program registers `kafkaprom.New` ([Kafka](../kafka.md)).", []Metric{
			{"headgate_kafka_running", nil, ""},
			{"headgate_kafka_held_records", nil, ""},
			{"headgate_kafka_held_bytes", nil, ""},
			{"headgate_kafka_fetched_bytes", nil, ""},
			{"headgate_kafka_lag", nil, ""},
			{"headgate_kafka_oldest_seconds", nil, ""},
			{"headgate_kafka_held_seconds", nil, ""},
			{"headgate_kafka_partition_running", nil, ""},
			{"headgate_kafka_paused", nil, ""},
			{"headgate_kafka_behind", nil, ""},
			{"headgate_kafka_attempts_total", values("outcome", "success", "failure"), ""},
			{"headgate_kafka_retries_total", values("where", "place", "topic"), ""},
			{"headgate_kafka_given_up_total", values("how", "dead_letter", "discarded", "skipped", "detoured"), ""},
			{"headgate_kafka_pauses_total", values("reason", "room", "delay"), ""},
			{"headgate_kafka_refused_total", nil, ""},
			{"headgate_kafka_abandoned_total", nil, ""},
			{"headgate_kafka_commit_errors_total", nil, ""},
		}},
		{"Consumers and publishers of RabbitMQ", "Where a program registers `rabbitmqprom.New` or `rabbitmqprom.NewPublisher` ([RabbitMQ](../rabbitmq.md)).", []Metric{
			{"headgate_rabbitmq_connected", nil, ""},
			{"headgate_rabbitmq_running", nil, ""},
			{"headgate_rabbitmq_held_messages", nil, ""},
			{"headgate_rabbitmq_held_bytes", nil, ""},
			{"headgate_rabbitmq_prefetch", nil, ""},
			{"headgate_rabbitmq_ready_messages", nil, ""},
			{"headgate_rabbitmq_round_trip_seconds", nil, ""},
			{"headgate_rabbitmq_oldest_seconds", nil, ""},
			{"headgate_rabbitmq_head_seconds", nil, ""},
			{"headgate_rabbitmq_delivered_total", nil, ""},
			{"headgate_rabbitmq_redelivered_total", nil, ""},
			{"headgate_rabbitmq_attempts_total", values("outcome", "success", "failure"), ""},
			{"headgate_rabbitmq_retries_total", values("where", "place", "tier"), ""},
			{"headgate_rabbitmq_given_up_total", values("how", "dead_letter", "rejected", "discarded"), ""},
			{"headgate_rabbitmq_returned_total", values("why", "requeued", "abandoned", "lost"), ""},
			{"headgate_rabbitmq_refused_total", nil, ""},
			{"headgate_rabbitmq_connects_total", nil, ""},
			{"headgate_rabbitmq_prefetch_changes_total", nil, ""},
			{"headgate_rabbitmq_publisher_connected", nil, ""},
			{"headgate_rabbitmq_publisher_blocked", nil, ""},
			{"headgate_rabbitmq_publisher_blocks_total", nil, ""},
			{"headgate_rabbitmq_publisher_connects_total", nil, ""},
			{"headgate_rabbitmq_publisher_resent_total", nil, ""},
			{"headgate_rabbitmq_publisher_outstanding", nil, ""},
			{"headgate_rabbitmq_published_total", values("outcome", "confirmed", "refused", "returned", "unsent", "unconfirmed"), ""},
		}},
		{"The process", "Besides these, programs show `go_*` and `process_*` of the Go runtime and of the process.", []Metric{
			{"headgate_build_info", nil, ""},
			{"headgate_tls_certificate_expiry_timestamp_seconds", nil, "Shown where addresses are served with TLS."},
			{"headgate_insight_bytes", nil, ""},
			{"headgate_insight_left_out_total", values("what", "decisions", "events"), ""},
			{"headgate_heap_reserve_bytes", nil, "See [memory](../operations.md#memory)."},
		}},
	}
}
