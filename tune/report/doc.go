// Package report shows what a replay found: as text for a terminal, and as one HTML file
// that asks nobody for anything.
//
// # Basics
//
//	err := report.Text(os.Stdout, result)
//	err := report.HTML(file, result, "proposed.yaml")
//
// # Caveats
//
// Names of clients and lines of logs are what strangers have sent. Both reports show them
// so that neither a terminal nor a browser takes them for anything but text.
package report
