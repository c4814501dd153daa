package monitoring

// Dashboard is a dashboard of Grafana.
type Dashboard struct {
	// UID is the name of its file and of its link.
	UID, Title string
	Rows       []Row
}

// Row is a headed group of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel shows queries, as a graph if it has no Kind.
type Panel struct {
	Title, About string
	// Unit is one of Grafana's: "reqps", "s", "percentunit", "bytes", "short".
	Unit string
	// Kind is "timeseries" if empty, or "stat".
	Kind    string
	Queries []Query
}

// Query is an expression with $job, $instance and $__rate_interval, and what its series are
// called.
type Query struct{ Expr, Legend string }

// selected are the labels that every query selects by.
const selected = `job=~"$job", instance=~"$instance"`

// rate is the sum of the rates of a counter by labels; more are further matchers.
func rate(metric, by, more string) string {
	return "sum by (" + by + ") (rate(" + metric + "{" + matchers(more) + "}[$__rate_interval]))"
}

// sum is the sum of a gauge by labels.
func sum(metric, by string) string {
	return "sum by (" + by + ") (" + metric + "{" + selected + "})"
}

// quantile is that of a histogram by labels.
func quantile(q, metric, by, more string) string {
	if by != "" {
		by = ", " + by
	}
	return "histogram_quantile(" + q + ", sum by (le" + by + ") (rate(" + metric + "_bucket{" + matchers(more) + "}[$__rate_interval])))"
}

func matchers(more string) string {
	if more == "" {
		return selected
	}
	return selected + ", " + more
}

// percentiles are the median and the tails of a histogram.
func percentiles(metric, by, more, legend string) []Query {
	return []Query{
		{quantile("0.5", metric, by, more), "p50" + legend},
		{quantile("0.99", metric, by, more), "p99" + legend},
		{quantile("0.999", metric, by, more), "p99.9" + legend},
	}
}

// Dashboards are all dashboards.
func Dashboards() []Dashboard {
	return []Dashboard{serviceBoard(), redisBoard(), gatewayBoard(), flowBoard()}
}

func serviceBoard() Dashboard {
	denied := rate("headgate_decisions_total", "rule", `outcome="denied"`)
	return Dashboard{"headgate-service", "Headgate: service", []Row{
		{"Decisions", []Panel{
			{"Decisions", "One for each limit of each request.", "reqps", "", []Query{{rate("headgate_decisions_total", "outcome", ""), "{{outcome}}"}}},
			{"Denied, by rule", "The ten rules that deny most.", "reqps", "", []Query{{"topk(10, " + denied + ")", "{{rule}}"}}},
			{"Share that is denied", "Of the decisions of each rule.", "percentunit", "", []Query{{"topk(10, " + denied + " / (" + rate("headgate_decisions_total", "rule", "") + " > 0))", "{{rule}}"}}},
			{"Who decided", "The store, or what stands before it or in its place.", "reqps", "", []Query{{rate("headgate_decisions_by_source_total", "source", ""), "{{source}}"}}},
			{"Close to a limit", "Requests that were admitted and have used the share of a limit from which the rule warns (soft).", "reqps", "", []Query{{rate("headgate_soft_total", "rule", ""), "{{rule}}"}}},
			{"Answered by a list", "Requests that an entry of the allow list or the deny list answered.", "reqps", "", []Query{{rate("headgate_list_hits_total", "list, entry", ""), "{{list}}: {{entry}}"}}},
		}},
		{"Store", []Panel{
			{"Time of a decision", "What the store takes, or what decides without it.", "s", "", percentiles("headgate_store_duration_seconds", "", `op="take"`, "")},
			{"Calls", "", "reqps", "", []Query{{rate("headgate_store_duration_seconds_count", "op", ""), "{{op}}"}}},
			{"Errors", "Calls that ended without a decision.", "reqps", "", []Query{{rate("headgate_store_errors_total", "reason", ""), "{{reason}}"}}},
			{"Counters in memory", "", "short", "", []Query{{sum("headgate_memory_counters", "instance"), "{{instance}}"}}},
			{"Memory of counters", "", "bytes", "", []Query{{sum("headgate_memory_bytes", "instance"), "{{instance}}"}}},
			{"Decisions on shared counters", "More than none: memory is full, and keys share counters.", "reqps", "", []Query{
				{rate("headgate_memory_shared_total", "instance", ""), "{{instance}}: counters"}, {rate("headgate_memory_merged_total", "instance", ""), "{{instance}}: logs"},
			}},
		}},
		{"Policy", []Panel{
			{"Policies in force", "More than one for minutes: a roll-out is stuck.", "short", "stat", []Query{{"count(count by (hash) (headgate_policy_info{" + selected + "}))", ""}}},
			{"Files with mistakes", "", "short", "stat", []Query{{"sum(headgate_policy_last_reload_failed{" + selected + "})", "policy"}, {"sum(headgate_candidate_last_reload_failed{" + selected + "})", "candidate"}}},
			{"The certificate ends in", "The earliest of all.", "s", "stat", []Query{{"min(headgate_tls_certificate_expiry_timestamp_seconds{" + selected + "}) - time()", ""}}},
			{"Candidate", "What the candidate would decide.", "reqps", "", []Query{{rate("headgate_candidate_compared_total", "outcome", ""), "{{outcome}}"}}},
			{"Differences of the candidate", "", "reqps", "", []Query{{rate("headgate_candidate_differences_total", "kind, rule", ""), "{{kind}}: {{rule}}"}}},
			{"Reloads", "", "short", "", []Query{{"sum by (result) (increase(headgate_policy_reloads_total{" + selected + "}[$__rate_interval]))", "{{result}}"}}},
		}},
		{"Process", []Panel{
			{"Processor", "1 is a processor in full use.", "short", "", []Query{{rate("process_cpu_seconds_total", "instance", ""), "{{instance}}"}}},
			{"Memory", "", "bytes", "", []Query{{sum("process_resident_memory_bytes", "instance"), "{{instance}}"}, {sum("headgate_insight_bytes", "instance"), "{{instance}}: who uses what"}}},
			{"Left out of insight", "What the dashboard and top do not know.", "reqps", "", []Query{{rate("headgate_insight_left_out_total", "what", ""), "{{what}}"}}},
			{"Connections of Redis clients", "", "short", "", []Query{{sum("headgate_resp_connections", "instance"), "{{instance}}"}}},
		}},
	}}
}

func redisBoard() Dashboard {
	return Dashboard{"headgate-redis", "Headgate: Redis and Valkey", []Row{
		{"Nodes", []Panel{
			{"p50 of calls", "A call may carry several decisions.", "s", "", []Query{{quantile("0.5", "headgate_store_node_duration_seconds", "node", ""), "{{node}}"}}},
			{"p99 of calls", "", "s", "", []Query{{quantile("0.99", "headgate_store_node_duration_seconds", "node", ""), "{{node}}"}}},
			{"p99.9 of calls", "", "s", "", []Query{{quantile("0.999", "headgate_store_node_duration_seconds", "node", ""), "{{node}}"}}},
			{"Calls", "", "reqps", "", []Query{{rate("headgate_store_node_duration_seconds_count", "node", ""), "{{node}}"}}},
			{"Calls that fail", "", "reqps", "", []Query{{rate("headgate_store_node_errors_total", "node", ""), "{{node}}"}}},
		}},
		{"Breaker", []Panel{
			{"State", "How many servers' breakers are in this state.", "short", "", []Query{{sum("headgate_store_breaker_state", "state"), "{{state}}"}}},
			{"Decided without the store", "error: 503. open: let in. local: by this server's share.", "reqps", "", []Query{{rate("headgate_requests_without_store_total", "by", ""), "{{by}}"}}},
			{"Openings and failures", "", "reqps", "", []Query{{rate("headgate_store_breaker_opened_total", "instance", ""), "{{instance}}: opened"}, {rate("headgate_store_failures_total", "instance", ""), "{{instance}}: failures"}}},
			{"Probes", "", "reqps", "", []Query{{rate("headgate_store_probes_total", "result", ""), "{{result}}"}}},
			{"Servers that share the store", "", "short", "stat", []Query{{"min(headgate_instances{" + selected + "})", ""}}},
			{"Learning", "1: the store has lost its data.", "short", "stat", []Query{{"max(headgate_store_learning{" + selected + "})", ""}}},
			{"Debts", "Keys of which local admissions are still to be charged.", "short", "", []Query{{sum("headgate_store_debts", "instance"), "{{instance}}"}}},
			{"Charged afterwards, and dropped", "", "short", "", []Query{{rate("headgate_store_handed_back_units_total", "job", ""), "units charged"}, {rate("headgate_store_debts_dropped_total", "job", ""), "dropped"}}},
		}},
		{"Fewer calls", []Panel{
			{"Leases", "Checks that were admitted with units taken in advance, and how often such units were taken.", "reqps", "", []Query{{rate("headgate_lease_served_total", "job", ""), "served"}, {rate("headgate_leases_total", "job", ""), "leases"}}},
			{"Units of leases", "", "short", "", []Query{{rate("headgate_lease_units_total", "what", ""), "{{what}}"}, {sum("headgate_lease_held_units", "job"), "held now"}}},
			{"Keys", "", "short", "", []Query{{sum("headgate_lease_keys", "job"), "leased"}, {sum("headgate_async_keys", "job"), "asynchronous"}, {sum("headgate_deny_cache_keys", "job"), "remembered denials"}}},
			{"Asynchronous checks", "", "reqps", "", []Query{{rate("headgate_async_checks_total", "by", ""), "{{by}}"}}},
			{"Asynchronous reports", "", "reqps", "", []Query{{rate("headgate_async_reports_total", "result", ""), "{{result}}"}, {sum("headgate_async_unreported_units", "job"), "unreported units"}}},
			{"Regions: calls to the home", "", "reqps", "", []Query{{rate("headgate_region_home_calls_total", "instance", ""), "{{instance}}"}, {rate("headgate_region_home_failures_total", "instance", ""), "{{instance}}: failed"}}},
			{"Regions: keys", "", "short", "", []Query{{sum("headgate_region_keys", "job"), "asked for"}, {sum("headgate_region_lent_keys", "job"), "with more than the region's own part"}, {rate("headgate_region_untracked_total", "job", ""), "untracked checks a second"}}},
			{"Regions: without a lease", "", "reqps", "", []Query{{rate("headgate_region_floor_total", "instance", ""), "{{instance}}: own part"}, {rate("headgate_region_late_total", "instance", ""), "{{instance}}: too late"}}},
			{"Regions: cut off", "", "short", "stat", []Query{{"sum(headgate_region_cut_off{" + selected + "})", ""}}},
			{"Deny cache: messages", "", "reqps", "", []Query{{rate("headgate_deny_cache_messages_total", "result", ""), "{{result}}"}, {rate("headgate_deny_cache_keys_told_total", "result", ""), "told: {{result}}"}}},
			{"Deny cache: servers that listen", "", "short", "stat", []Query{{"sum(headgate_deny_cache_listening{" + selected + "})", ""}}},
		}},
	}}
}

func gatewayBoard() Dashboard {
	return Dashboard{"headgate-gateway", "Headgate: gateway", []Row{
		{"Clients", []Panel{
			{"Requests", "By what became of them.", "reqps", "", []Query{{rate("headgate_gateway_requests_total", "outcome", ""), "{{outcome}}"}}},
			{"Statuses", "That clients got.", "reqps", "", []Query{{rate("headgate_gateway_requests_total", "status", ""), "{{status}}"}}},
			{"In progress", "", "short", "", []Query{{sum("headgate_gateway_requests_in_flight", "instance"), "{{instance}}"}}},
			{"Connections", "", "short", "", []Query{{sum("headgate_gateway_connections", "instance"), "{{instance}}"}, {sum("headgate_gateway_upgraded_connections", "instance"), "{{instance}}: upgraded"}}},
			{"Connections refused", "", "reqps", "", []Query{{rate("headgate_gateway_connections_refused_total", "instance", ""), "{{instance}}"}}},
			{"Settlements", "Reservations of requests that have ended.", "reqps", "", []Query{{rate("headgate_gateway_settlements_total", "result", ""), "{{result}}"}}},
		}},
		{"Language models", []Panel{
			{"Money in an hour", "What the tokens that providers have stated cost, in the policy's currency.", "short", "", []Query{{"sum by (model) (increase(headgate_llm_money_total{" + selected + "}[1h]))", "{{model}}"}}},
			{"Tokens a second", "", "short", "", []Query{{rate("gen_ai_client_token_usage_sum", "gen_ai_request_model, gen_ai_token_type", ""), "{{gen_ai_request_model}}: {{gen_ai_token_type}}"}}},
			{"Charged", "What the provider has not stated is charged by estimate.", "short", "", []Query{{rate("headgate_llm_charged_total", "rule, by", ""), "{{rule}}: by {{by}}"}}},
			{"First part of a stream", "", "s", "", []Query{{quantile("0.99", "gen_ai_client_operation_time_to_first_chunk_seconds", "gen_ai_request_model", ""), "{{gen_ai_request_model}}: p99"}}},
		}},
		{"Upstreams", []Panel{
			{"Answers", "By their status, or that of the one in their place.", "reqps", "", []Query{{rate("headgate_gateway_answers_total", "status", ""), "{{status}}"}}},
			{"Targets in use", "", "short", "", []Query{{sum("headgate_gateway_target_up", "upstream"), "{{upstream}}"}}},
			{"Requests", "", "reqps", "", []Query{{rate("headgate_gateway_target_requests_total", "upstream, target", ""), "{{upstream}} {{target}}"}}},
			{"Not answered", "", "reqps", "", []Query{{rate("headgate_gateway_target_failures_total", "upstream, target", ""), "{{upstream}} {{target}}"}}},
			{"With the target", "", "short", "", []Query{{sum("headgate_gateway_target_requests_in_flight", "upstream, target"), "{{upstream}} {{target}}"}}},
			{"Gateway files with mistakes", "", "short", "stat", []Query{{"sum(headgate_gateway_last_reload_failed{" + selected + "})", ""}}},
		}},
	}}
}

func flowBoard() Dashboard {
	return Dashboard{"headgate-flow", "Headgate: flow control", []Row{
		{"Gates", []Panel{
			{"In progress, and the limit", "", "short", "", []Query{{sum("headgate_gate_in_progress", "gate"), "{{gate}}"}, {sum("headgate_gate_limit", "gate"), "{{gate}}: limit"}}},
			{"Waiting", "", "short", "", []Query{{sum("headgate_gate_waiting", "gate"), "{{gate}}"}}},
			{"Admitted", "", "reqps", "", []Query{{rate("headgate_gate_admitted_total", "gate, class", ""), "{{gate}}: {{class}}"}}},
			{"Shed", "", "reqps", "", []Query{{rate("headgate_gate_shed_total", "gate, class, reason", ""), "{{gate}}: {{class}}, {{reason}}"}}},
			{"Ended", "", "reqps", "", []Query{{rate("headgate_gate_done_total", "gate, outcome", ""), "{{gate}}: {{outcome}}"}}},
			{"Time of work that does not wait", "As adaptive gates estimate it.", "s", "", []Query{{"max by (gate) (headgate_gate_base_seconds{" + selected + "})", "{{gate}}"}}},
			{"Pressure", "How short the process is of processor time or memory.", "percentunit", "", []Query{{"max by (gate) (headgate_gate_pressure{" + selected + "})", "{{gate}}"}}},
		}},
		{"Rules that bound what is in progress", []Panel{
			{"Permits", "", "short", "", []Query{{sum("headgate_in_progress_permits", "rule"), "{{rule}}"}}},
			{"Keys in use, and the limit of each", "", "short", "", []Query{{sum("headgate_in_progress_keys", "rule"), "{{rule}}"}, {"max by (rule) (headgate_in_progress_limit{" + selected + "})", "{{rule}}: limit"}}},
			{"Waiting", "", "short", "", []Query{{sum("headgate_in_progress_waiting", "rule"), "{{rule}}"}}},
			{"Refused", "", "reqps", "", []Query{{rate("headgate_in_progress_refused_total", "rule, reason", `shadow="false"`), "{{rule}}: {{reason}}"}}},
			{"Waits", "", "s", "", []Query{{quantile("0.99", "headgate_in_progress_wait_seconds", "rule", ""), "{{rule}}: p99"}}},
			{"Permits of other programs", "Calls to acquire, renew and so on, by what became of them.", "reqps", "", []Query{{rate("headgate_permit_calls_total", "call, outcome", ""), "{{call}}: {{outcome}}"}}},
			{"Shared permits lost", "", "reqps", "", []Query{{rate("headgate_in_progress_lost_total", "rule", ""), "{{rule}}"}}},
		}},
		{"Kafka", []Panel{
			{"Lag", "Records from the first that is not done to the end.", "short", "", []Query{{sum("headgate_kafka_lag", "topic"), "{{topic}}"}}},
			{"Oldest record in work", "", "s", "", []Query{{"max by (topic) (headgate_kafka_oldest_seconds{" + selected + "})", "{{topic}}"}}},
			{"Being handled", "", "short", "", []Query{{sum("headgate_kafka_running", "instance"), "{{instance}}"}}},
			{"Handled", "", "reqps", "", []Query{{rate("headgate_kafka_attempts_total", "outcome", ""), "{{outcome}}"}}},
			{"Tried again, and given up", "", "reqps", "", []Query{{rate("headgate_kafka_retries_total", "where", ""), "again: {{where}}"}, {rate("headgate_kafka_given_up_total", "how", ""), "{{how}}"}}},
			{"Partitions paused or behind", "", "short", "", []Query{{sum("headgate_kafka_paused", "topic"), "{{topic}}: paused"}, {sum("headgate_kafka_behind", "topic"), "{{topic}}: behind"}}},
			{"Held back by a gate", "", "reqps", "", []Query{{rate("headgate_kafka_refused_total", "instance", ""), "{{instance}}"}}},
			{"Memory of records", "", "bytes", "", []Query{{sum("headgate_kafka_held_bytes", "instance"), "{{instance}}: held"}, {sum("headgate_kafka_fetched_bytes", "instance"), "{{instance}}: fetched ahead"}}},
		}},
		{"RabbitMQ: consumers", []Panel{
			{"Waiting in the queue", "As of the consumer's last look.", "short", "", []Query{{"max by (job) (headgate_rabbitmq_ready_messages{" + selected + "})", "{{job}}"}}},
			{"Age at delivery", "Of the message that was delivered last, while others wait.", "s", "", []Query{{"max by (job) (headgate_rabbitmq_head_seconds{" + selected + "})", "{{job}}"}}},
			{"Oldest message in work", "", "s", "", []Query{{"max by (instance) (headgate_rabbitmq_oldest_seconds{" + selected + "})", "{{instance}}"}}},
			{"Prefetch, and what is held", "", "short", "", []Query{{sum("headgate_rabbitmq_prefetch", "instance"), "{{instance}}: prefetch"}, {sum("headgate_rabbitmq_held_messages", "instance"), "{{instance}}: held"}, {sum("headgate_rabbitmq_running", "instance"), "{{instance}}: being handled"}}},
			{"Handled", "", "reqps", "", []Query{{rate("headgate_rabbitmq_attempts_total", "outcome", ""), "{{outcome}}"}}},
			{"Tried again, and given up", "", "reqps", "", []Query{{rate("headgate_rabbitmq_retries_total", "where", ""), "again: {{where}}"}, {rate("headgate_rabbitmq_given_up_total", "how", ""), "{{how}}"}}},
			{"Come again", "Given back before they were handled, not ended in time, or lost with a connection.", "reqps", "", []Query{{rate("headgate_rabbitmq_returned_total", "why", ""), "{{why}}"}}},
			{"Held back by a gate", "", "reqps", "", []Query{{rate("headgate_rabbitmq_refused_total", "instance", ""), "{{instance}}"}}},
			{"Memory of messages", "", "bytes", "", []Query{{sum("headgate_rabbitmq_held_bytes", "instance"), "{{instance}}"}}},
			{"Connections", "1 while there is one; and how often one was made.", "short", "", []Query{{sum("headgate_rabbitmq_connected", "instance"), "{{instance}}"}, {"sum by (instance) (increase(headgate_rabbitmq_connects_total{" + selected + "}[$__rate_interval]))", "{{instance}}: made"}}},
			{"Round trip to the broker", "", "s", "", []Query{{"max by (instance) (headgate_rabbitmq_round_trip_seconds{" + selected + "})", "{{instance}}"}}},
		}},
		{"RabbitMQ: publishers", []Panel{
			{"Published", "By how that ended.", "reqps", "", []Query{{rate("headgate_rabbitmq_published_total", "outcome", ""), "{{outcome}}"}}},
			{"Not confirmed yet", "", "short", "", []Query{{sum("headgate_rabbitmq_publisher_outstanding", "instance"), "{{instance}}"}}},
			{"Blocked by the broker", "1 while it takes no messages.", "short", "", []Query{{sum("headgate_rabbitmq_publisher_blocked", "instance"), "{{instance}}"}}},
			{"Connections", "", "short", "", []Query{{sum("headgate_rabbitmq_publisher_connected", "instance"), "{{instance}}"}}},
			{"Sent again", "After a connection broke.", "reqps", "", []Query{{rate("headgate_rabbitmq_publisher_resent_total", "instance", ""), "{{instance}}"}}},
		}},
	}}
}
