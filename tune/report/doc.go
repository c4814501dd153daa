// Package report shows the result of a replay: as text for a terminal, and as one HTML file that
// loads nothing else.
//
// # Basics
//
//	err := report.Text(os.Stdout, result)
//	err := report.HTML(file, result, "proposed.yaml")
//
// # Caveats
//
// Names of clients and lines of logs come from strangers. Both reports show them in a form that
// terminals and browsers treat as plain text.
package report
