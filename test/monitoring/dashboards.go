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

// Annotation marks on all graphs when something was the case.
type Annotation struct{ Name, Color, Expr, Text string }

// Annotations are those of every dashboard.
func Annotations() []Annotation {
	return []Annotation{
		// That a policy was not there a minute ago.
		{"Policy", "blue", "count by (version, hash) (headgate_policy_info{" + selected + "} unless on (instance, hash) headgate_policy_info{" + selected + "} offset 1m)", "policy version {{version}}, {{hash}}"},
		{"Outage", "red", "max by (instance) (headgate_store_breaker_state{" + selected + `, state="open"}) > 0`, "the store does not answer {{instance}}"},
	}
}

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
			{"Calls", "Calls to the store, by what they ask for. Leases and remembered denials make them fewer than requests.", "reqps", "", []Query{{rate("headgate_store_duration_seconds_count", "op", ""), "{{op}}"}}},
			{"Errors", "Calls that ended without a decision.", "reqps", "", []Query{{rate("headgate_store_errors_total", "reason", ""), "{{reason}}"}}},
			{"Counters in memory", "Counters of the memory store, or of local shares while a store does not answer.", "short", "", []Query{{sum("headgate_memory_counters", "instance"), "{{instance}}"}}},
			{"Memory of counters", "What they take. At the bound that --memory sets, keys begin to share counters.", "bytes", "", []Query{{sum("headgate_memory_bytes", "instance"), "{{instance}}"}}},
			{"Decisions on shared counters", "More than none: memory is full, and keys share counters.", "reqps", "", []Query{
				{rate("headgate_memory_shared_total", "instance", ""), "{{instance}}: counters"}, {rate("headgate_memory_merged_total", "instance", ""), "{{instance}}: logs"},
			}},
		}},
		{"Policy", []Panel{
			{"Policies in force", "More than one for minutes: a roll-out is stuck.", "short", "stat", []Query{{"count(count by (hash) (headgate_policy_info{" + selected + "}))", ""}}},
			{"Files with mistakes", "Not zero: the file on disk is not what is in force. The log of the server names each mistake.", "short", "stat", []Query{{"sum(headgate_policy_last_reload_failed{" + selected + "})", "policy"}, {"sum(headgate_candidate_last_reload_failed{" + selected + "})", "candidate"}}},
			{"The certificate ends in", "The earliest of all.", "s", "stat", []Query{{"min(headgate_tls_certificate_expiry_timestamp_seconds{" + selected + "}) - time()", ""}}},
			{"Candidate", "What the candidate would decide.", "reqps", "", []Query{{rate("headgate_candidate_compared_total", "outcome", ""), "{{outcome}}"}}},
			{"Differences of the candidate", "By the rule that decides. Newly denied are requests that are let in today.", "reqps", "", []Query{{rate("headgate_candidate_differences_total", "kind, rule", ""), "{{kind}}: {{rule}}"}}},
			{"Reloads", "How often files were read again, and what came of it. A failed one leaves in force what was.", "short", "", []Query{{"sum by (result) (increase(headgate_policy_reloads_total{" + selected + "}[$__rate_interval]))", "{{result}}"}}},
		}},
		{"Process", []Panel{
			{"Processor", "1 is a processor in full use.", "short", "", []Query{{rate("process_cpu_seconds_total", "instance", ""), "{{instance}}"}}},
			{"Memory", "Of the process, and of it what the dashboard knows of keys, which is bounded.", "bytes", "", []Query{{sum("process_resident_memory_bytes", "instance"), "{{instance}}"}, {sum("headgate_insight_bytes", "instance"), "{{instance}}: who uses what"}}},
			{"Left out of insight", "What the dashboard and top do not know.", "reqps", "", []Query{{rate("headgate_insight_left_out_total", "what", ""), "{{what}}"}}},
			{"Connections of Redis clients", "Clients that speak the Redis protocol to Headgate.", "short", "", []Query{{sum("headgate_resp_connections", "instance"), "{{instance}}"}}},
		}},
	}}
}

func redisBoard() Dashboard {
	return Dashboard{"headgate-redis", "Headgate: Redis and Valkey", []Row{
		{"Nodes", []Panel{
			{"p50 of calls", "A call may carry several decisions.", "s", "", []Query{{quantile("0.5", "headgate_store_node_duration_seconds", "node", ""), "{{node}}"}}},
			{"p99 of calls", "One call in a hundred takes longer. From 50 ms on, the dashboard calls the store slow.", "s", "", []Query{{quantile("0.99", "headgate_store_node_duration_seconds", "node", ""), "{{node}}"}}},
			{"p99.9 of calls", "One call in a thousand takes longer. Compare with --store-timeout, at which calls are given up.", "s", "", []Query{{quantile("0.999", "headgate_store_node_duration_seconds", "node", ""), "{{node}}"}}},
			{"Calls", "To each server of the store.", "reqps", "", []Query{{rate("headgate_store_node_duration_seconds_count", "node", ""), "{{node}}"}}},
			{"Calls that fail", "Without an answer in time, or with an error. The breaker opens if most fail.", "reqps", "", []Query{{rate("headgate_store_node_errors_total", "node", ""), "{{node}}"}}},
		}},
		{"Breaker", []Panel{
			{"State", "How many servers' breakers are in this state.", "short", "", []Query{{sum("headgate_store_breaker_state", "state"), "{{state}}"}}},
			{"Decided without the store", "error: 503. open: let in. local: by this server's share.", "reqps", "", []Query{{rate("headgate_requests_without_store_total", "by", ""), "{{by}}"}}},
			{"Openings and failures", "How often the breaker has opened, and calls that failed although the store was asked.", "reqps", "", []Query{{rate("headgate_store_breaker_opened_total", "instance", ""), "{{instance}}: opened"}, {rate("headgate_store_failures_total", "instance", ""), "{{instance}}: failures"}}},
			{"Probes", "Questions to a store that does not answer, whether it is back.", "reqps", "", []Query{{rate("headgate_store_probes_total", "result", ""), "{{result}}"}}},
			{"Servers that share the store", "By which local shares are divided. Fewer than there are servers: somebody cannot see the others.", "short", "stat", []Query{{"min(headgate_instances{" + selected + "})", ""}}},
			{"Learning", "1: the store has lost its data.", "short", "stat", []Query{{"max(headgate_store_learning{" + selected + "})", ""}}},
			{"Debts", "Keys of which local admissions are still to be charged.", "short", "", []Query{{sum("headgate_store_debts", "instance"), "{{instance}}"}}},
			{"Charged afterwards, and dropped", "Units that were admitted locally and charged when the store was back, and keys of which they never will be.", "short", "", []Query{{rate("headgate_store_handed_back_units_total", "job", ""), "units charged"}, {rate("headgate_store_debts_dropped_total", "job", ""), "dropped"}}},
		}},
		{"Fewer calls", []Panel{
			{"Leases", "Checks that were admitted with units taken in advance, and how often such units were taken.", "reqps", "", []Query{{rate("headgate_lease_served_total", "job", ""), "served"}, {rate("headgate_leases_total", "job", ""), "leases"}}},
			{"Units of leases", "Units taken in advance, and what became of them. Lost ones were neither used nor given back.", "short", "", []Query{{rate("headgate_lease_units_total", "what", ""), "{{what}}"}, {sum("headgate_lease_held_units", "job"), "held now"}}},
			{"Keys", "In the memory of the servers, by what is known of them.", "short", "", []Query{{sum("headgate_lease_keys", "job"), "leased"}, {sum("headgate_async_keys", "job"), "asynchronous"}, {sum("headgate_deny_cache_keys", "job"), "remembered denials"}}},
			{"Asynchronous checks", "Decisions of rules with consistency async, by who made them.", "reqps", "", []Query{{rate("headgate_async_checks_total", "by", ""), "{{by}}"}}},
			{"Asynchronous reports", "What they tell the store afterwards, and units that it does not know of yet.", "reqps", "", []Query{{rate("headgate_async_reports_total", "result", ""), "{{result}}"}, {sum("headgate_async_unreported_units", "job"), "unreported units"}}},
			{"Regions: calls to the home", "Exchanges with the store in which regions share limits, and those that failed.", "reqps", "", []Query{{rate("headgate_region_home_calls_total", "instance", ""), "{{instance}}"}, {rate("headgate_region_home_failures_total", "instance", ""), "{{instance}}: failed"}}},
			{"Regions: keys", "Keys that regions want more units of, those that have got some, and checks that there was no memory for.", "short", "", []Query{{sum("headgate_region_keys", "job"), "asked for"}, {sum("headgate_region_lent_keys", "job"), "with more than the region's own part"}, {rate("headgate_region_untracked_total", "job", ""), "untracked checks a second"}}},
			{"Regions: without a lease", "Checks decided by the region's own part alone, and by a lease that came too late.", "reqps", "", []Query{{rate("headgate_region_floor_total", "instance", ""), "{{instance}}: own part"}, {rate("headgate_region_late_total", "instance", ""), "{{instance}}: too late"}}},
			{"Regions: cut off", "Servers that do not reach the regions' home, and enforce their own part only.", "short", "stat", []Query{{"sum(headgate_region_cut_off{" + selected + "})", ""}}},
			{"Envoys with shares", "Streams of the rate limit quota service: one for each Envoy and domain.", "short", "stat", []Query{{"sum(headgate_quota_streams{" + selected + "})", ""}}},
			{"Envoys' shares", "What Envoys are told about buckets; failed and undivided are buckets without an answer.", "reqps", "", []Query{{rate("headgate_quota_answers_total", "kind", ""), "{{kind}}"}}},
			{"Deny cache: messages", "Denials that servers tell each other, and what came of the messages.", "reqps", "", []Query{{rate("headgate_deny_cache_messages_total", "result", ""), "{{result}}"}, {rate("headgate_deny_cache_keys_told_total", "result", ""), "told: {{result}}"}}},
			{"Deny cache: servers that listen", "Servers that hear of the denials of others. Fewer than there are: repeated denials ask the store.", "short", "stat", []Query{{"sum(headgate_deny_cache_listening{" + selected + "})", ""}}},
		}},
	}}
}

func gatewayBoard() Dashboard {
	return Dashboard{"headgate-gateway", "Headgate: gateway", []Row{
		{"Clients", []Panel{
			{"Requests", "By what became of them.", "reqps", "", []Query{{rate("headgate_gateway_requests_total", "outcome", ""), "{{outcome}}"}}},
			{"Statuses", "That clients got.", "reqps", "", []Query{{rate("headgate_gateway_requests_total", "status", ""), "{{status}}"}}},
			{"In progress", "Requests that the gateway has begun and not ended.", "short", "", []Query{{sum("headgate_gateway_requests_in_flight", "instance"), "{{instance}}"}}},
			{"Connections", "Of clients, and those of them that became WebSockets or the like.", "short", "", []Query{{sum("headgate_gateway_connections", "instance"), "{{instance}}"}, {sum("headgate_gateway_upgraded_connections", "instance"), "{{instance}}: upgraded"}}},
			{"Connections refused", "Beyond the bound of the gateway file: they were closed at once.", "reqps", "", []Query{{rate("headgate_gateway_connections_refused_total", "instance", ""), "{{instance}}"}}},
			{"Settlements", "Reservations of requests that have ended.", "reqps", "", []Query{{rate("headgate_gateway_settlements_total", "result", ""), "{{result}}"}}},
		}},
		{"Language models", []Panel{
			{"Money in an hour", "What the tokens that providers have stated cost, in the policy's currency.", "short", "", []Query{{"sum by (model) (increase(headgate_llm_money_total{" + selected + "}[1h]))", "{{model}}"}}},
			{"Tokens a second", "That providers have stated.", "short", "", []Query{{rate("gen_ai_client_token_usage_sum", "gen_ai_request_model, gen_ai_token_type", ""), "{{gen_ai_request_model}}: {{gen_ai_token_type}}"}}},
			{"Charged", "What the provider has not stated is charged by estimate.", "short", "", []Query{{rate("headgate_llm_charged_total", "rule, by", ""), "{{rule}}: by {{by}}"}}},
			{"First part of a stream", "How long it took until it came, counted from when the call was sent.", "s", "", []Query{{quantile("0.99", "gen_ai_client_operation_time_to_first_chunk_seconds", "gen_ai_request_model", ""), "{{gen_ai_request_model}}: p99"}}},
		}},
		{"Upstreams", []Panel{
			{"Answers", "By their status, or that of the one in their place.", "reqps", "", []Query{{rate("headgate_gateway_answers_total", "status", ""), "{{status}}"}}},
			{"Targets in use", "Targets that get requests. A target that fails too often gets none for a while.", "short", "", []Query{{sum("headgate_gateway_target_up", "upstream"), "{{upstream}}"}}},
			{"Requests", "Sent to each target, with those that were tried again.", "reqps", "", []Query{{rate("headgate_gateway_target_requests_total", "upstream, target", ""), "{{upstream}} {{target}}"}}},
			{"Not answered", "Refused, reset or too late. The gateway tries another target where it may.", "reqps", "", []Query{{rate("headgate_gateway_target_failures_total", "upstream, target", ""), "{{upstream}} {{target}}"}}},
			{"With the target", "In progress at each target.", "short", "", []Query{{sum("headgate_gateway_target_requests_in_flight", "upstream, target"), "{{upstream}} {{target}}"}}},
			{"Gateway files with mistakes", "Not zero: the gateway file on disk is not what is in force. The log names each mistake.", "short", "stat", []Query{{"sum(headgate_gateway_last_reload_failed{" + selected + "})", ""}}},
		}},
	}}
}

func flowBoard() Dashboard {
	return Dashboard{"headgate-flow", "Headgate: flow control", []Row{
		{"Gates", []Panel{
			{"In progress, and the limit", "Units in progress, and how many a gate lets in at present.", "short", "", []Query{{sum("headgate_gate_in_progress", "gate"), "{{gate}}"}, {sum("headgate_gate_limit", "gate"), "{{gate}}: limit"}}},
			{"Waiting", "Requests that wait for units of a gate.", "short", "", []Query{{sum("headgate_gate_waiting", "gate"), "{{gate}}"}}},
			{"Admitted", "Let in, by the class of the request.", "reqps", "", []Query{{rate("headgate_gate_admitted_total", "gate, class", ""), "{{gate}}: {{class}}"}}},
			{"Shed", "Refused, by class and reason. Critical ones among them: the gate is much too small, or what is behind it too slow.", "reqps", "", []Query{{rate("headgate_gate_shed_total", "gate, class, reason", ""), "{{gate}}: {{class}}, {{reason}}"}}},
			{"Ended", "Work that was let in, by how it ended. An adaptive limit learns from successes only.", "reqps", "", []Query{{rate("headgate_gate_done_total", "gate, outcome", ""), "{{gate}}: {{outcome}}"}}},
			{"Time of work that does not wait", "As adaptive gates estimate it.", "s", "", []Query{{"max by (gate) (headgate_gate_base_seconds{" + selected + "})", "{{gate}}"}}},
			{"Pressure", "How short the process is of processor time or memory.", "percentunit", "", []Query{{"max by (gate) (headgate_gate_pressure{" + selected + "})", "{{gate}}"}}},
		}},
		{"Rules that bound what is in progress", []Panel{
			{"Permits", "Held under each rule.", "short", "", []Query{{sum("headgate_in_progress_permits", "rule"), "{{rule}}"}}},
			{"Keys in use, and the limit of each", "Keys that hold something, and how much one key may hold.", "short", "", []Query{{sum("headgate_in_progress_keys", "rule"), "{{rule}}"}, {"max by (rule) (headgate_in_progress_limit{" + selected + "})", "{{rule}}: limit"}}},
			{"Waiting", "Requests in line for a permit.", "short", "", []Query{{sum("headgate_in_progress_waiting", "rule"), "{{rule}}"}}},
			{"Refused", "Without a permit, by reason. Rules on trial are left out.", "reqps", "", []Query{{rate("headgate_in_progress_refused_total", "rule, reason", `shadow="false"`), "{{rule}}: {{reason}}"}}},
			{"Waits", "One request in a hundred waited longer for its permit.", "s", "", []Query{{quantile("0.99", "headgate_in_progress_wait_seconds", "rule", ""), "{{rule}}: p99"}}},
			{"Permits of other programs", "Calls to acquire, renew and so on, by what became of them.", "reqps", "", []Query{{rate("headgate_permit_calls_total", "call, outcome", ""), "{{call}}: {{outcome}}"}}},
			{"Shared permits lost", "The holder had not renewed them in time, or the store lost them. Others may hold them now.", "reqps", "", []Query{{rate("headgate_in_progress_lost_total", "rule", ""), "{{rule}}"}}},
		}},
		{"Kafka", []Panel{
			{"Lag", "Records from the first that is not done to the end.", "short", "", []Query{{sum("headgate_kafka_lag", "topic"), "{{topic}}"}}},
			{"Oldest record in work", "Long: a handler hangs, or a record is tried again and again.", "s", "", []Query{{"max by (topic) (headgate_kafka_oldest_seconds{" + selected + "})", "{{topic}}"}}},
			{"Being handled", "Records in the hands of handlers.", "short", "", []Query{{sum("headgate_kafka_running", "instance"), "{{instance}}"}}},
			{"Handled", "Attempts, by how they ended.", "reqps", "", []Query{{rate("headgate_kafka_attempts_total", "outcome", ""), "{{outcome}}"}}},
			{"Tried again, and given up", "Attempts that are repeated, and records that were given up and where they went.", "reqps", "", []Query{{rate("headgate_kafka_retries_total", "where", ""), "again: {{where}}"}, {rate("headgate_kafka_given_up_total", "how", ""), "{{how}}"}}},
			{"Partitions paused or behind", "Paused: this program takes no more for now. Behind: the lag grows.", "short", "", []Query{{sum("headgate_kafka_paused", "topic"), "{{topic}}: paused"}, {sum("headgate_kafka_behind", "topic"), "{{topic}}: behind"}}},
			{"Held back by a gate", "Records that a gate did not let in yet. They stay, and are tried again.", "reqps", "", []Query{{rate("headgate_kafka_refused_total", "instance", ""), "{{instance}}"}}},
			{"Memory of records", "Records that wait or are being handled, and those that the client has fetched ahead.", "bytes", "", []Query{{sum("headgate_kafka_held_bytes", "instance"), "{{instance}}: held"}, {sum("headgate_kafka_fetched_bytes", "instance"), "{{instance}}: fetched ahead"}}},
		}},
		{"RabbitMQ: consumers", []Panel{
			{"Waiting in the queue", "As of the consumer's last look.", "short", "", []Query{{"max by (job) (headgate_rabbitmq_ready_messages{" + selected + "})", "{{job}}"}}},
			{"Age at delivery", "Of the message that was delivered last, while others wait.", "s", "", []Query{{"max by (job) (headgate_rabbitmq_head_seconds{" + selected + "})", "{{job}}"}}},
			{"Oldest message in work", "Long: a handler hangs, or a message is tried again and again.", "s", "", []Query{{"max by (instance) (headgate_rabbitmq_oldest_seconds{" + selected + "})", "{{instance}}"}}},
			{"Prefetch, and what is held", "How many messages the broker hands out in advance, how many are here, and how many are being handled.", "short", "", []Query{{sum("headgate_rabbitmq_prefetch", "instance"), "{{instance}}: prefetch"}, {sum("headgate_rabbitmq_held_messages", "instance"), "{{instance}}: held"}, {sum("headgate_rabbitmq_running", "instance"), "{{instance}}: being handled"}}},
			{"Handled", "Attempts, by how they ended.", "reqps", "", []Query{{rate("headgate_rabbitmq_attempts_total", "outcome", ""), "{{outcome}}"}}},
			{"Tried again, and given up", "Attempts that are repeated, and messages that were given up and where they went.", "reqps", "", []Query{{rate("headgate_rabbitmq_retries_total", "where", ""), "again: {{where}}"}, {rate("headgate_rabbitmq_given_up_total", "how", ""), "{{how}}"}}},
			{"Come again", "Given back before they were handled, not ended in time, or lost with a connection.", "reqps", "", []Query{{rate("headgate_rabbitmq_returned_total", "why", ""), "{{why}}"}}},
			{"Held back by a gate", "Messages that a gate did not let in yet. They stay, and are tried again.", "reqps", "", []Query{{rate("headgate_rabbitmq_refused_total", "instance", ""), "{{instance}}"}}},
			{"Memory of messages", "Messages that wait or are being handled.", "bytes", "", []Query{{sum("headgate_rabbitmq_held_bytes", "instance"), "{{instance}}"}}},
			{"Connections", "1 while there is one; and how often one was made.", "short", "", []Query{{sum("headgate_rabbitmq_connected", "instance"), "{{instance}}"}, {"sum by (instance) (increase(headgate_rabbitmq_connects_total{" + selected + "}[$__rate_interval]))", "{{instance}}: made"}}},
			{"Round trip to the broker", "How long the broker takes to answer. The prefetch follows from it.", "s", "", []Query{{"max by (instance) (headgate_rabbitmq_round_trip_seconds{" + selected + "})", "{{instance}}"}}},
		}},
		{"RabbitMQ: publishers", []Panel{
			{"Published", "By how that ended.", "reqps", "", []Query{{rate("headgate_rabbitmq_published_total", "outcome", ""), "{{outcome}}"}}},
			{"Not confirmed yet", "Published, and neither confirmed nor refused by the broker.", "short", "", []Query{{sum("headgate_rabbitmq_publisher_outstanding", "instance"), "{{instance}}"}}},
			{"Blocked by the broker", "1 while it takes no messages.", "short", "", []Query{{sum("headgate_rabbitmq_publisher_blocked", "instance"), "{{instance}}"}}},
			{"Connections", "1 while there is one.", "short", "", []Query{{sum("headgate_rabbitmq_publisher_connected", "instance"), "{{instance}}"}}},
			{"Sent again", "After a connection broke.", "reqps", "", []Query{{rate("headgate_rabbitmq_publisher_resent_total", "instance", ""), "{{instance}}"}}},
		}},
	}}
}
