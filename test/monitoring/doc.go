// Package monitoring writes what Prometheus and Grafana need to watch Headgate: the alert
// rules and the dashboards in deploy/monitoring.
//
// # Basics
//
// [Alerts] and [Dashboards] are tables in Go. TestWritten compares deploy/monitoring with
// them, and `make monitoring` writes it. Other tests prove both against the programs
// themselves: promtool shows that every alert fires when it should and is silent when it
// should not, every alert has its heading in docs/runbook.md, and a real Prometheus, which
// scrapes real servers under traffic, answers every query of every panel.
//
// [Groups] lists all metrics, and what these servers show is compared with it: names, labels and
// the values of labels. The page docs/reference/metrics.md is written from both by `make
// reference`, with the types and the help texts that the servers show.
//
// # Caveats
//
// Thresholds are those of a store on the same network. Whoever runs Headgate copies the
// rules and changes them.
package monitoring
