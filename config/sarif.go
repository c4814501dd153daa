package config

import (
	"encoding/json"
	"net/url"
	"path/filepath"

	"github.com/headgate/headgate/policy/lint"
)

// SARIF writes mistakes and warnings of policy files as a report in the Static
// Analysis Results Interchange Format 2.1.0, which code hosts show beside the
// lines. Warnings that are silenced (see lint.All) are in it as suppressed,
// with their reasons. The version is that of the tool.
func SARIF(found []Mistake, warnings []lint.Warning, version string) ([]byte, error) {
	results := []sarifResult{}
	for _, m := range found {
		results = append(results, sarifResult{
			RuleID: "mistake", Level: "error", Message: sarifText{m.Text},
			Locations: sarifPlace(m.File, m.Line, m.Column),
		})
	}
	for _, w := range warnings {
		text := w.Text
		if w.Rule != "" {
			text = "rule " + quote(w.Rule) + ": " + text
		}
		one := sarifResult{RuleID: w.Code, Level: "warning", Message: sarifText{text}, Locations: sarifPlace(w.Pos.File, w.Pos.Line, w.Pos.Column)}
		if w.Ignored != "" {
			one.Suppressions = []sarifSuppression{{"inSource", w.Ignored}}
		}
		results = append(results, one)
	}
	driver := sarifDriver{Name: "headgate lint", Version: version}
	driver.Rules = append(driver.Rules, sarifRule{ID: "mistake", About: sarifText{"A server does not start with this policy."}})
	for _, c := range lint.Codes() {
		driver.Rules = append(driver.Rules, sarifRule{c.Code, sarifText{c.About}, lint.URL(c.Code)})
	}
	var report sarifReport
	report.Schema, report.Version = "https://json.schemastore.org/sarif-2.1.0.json", "2.1.0"
	report.Runs = []sarifRun{{Tool: sarifTool{driver}, Results: results, ColumnKind: "unicodeCodePoints"}}
	return json.MarshalIndent(report, "", "  ")
}

type sarifReport struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool       sarifTool     `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID    string    `json:"id"`
	About sarifText `json:"shortDescription"`
	Help  string    `json:"helpUri,omitempty"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifResult struct {
	RuleID       string             `json:"ruleId"`
	Level        string             `json:"level"`
	Message      sarifText          `json:"message"`
	Locations    []sarifLocation    `json:"locations,omitempty"`
	Suppressions []sarifSuppression `json:"suppressions,omitempty"`
}

type sarifSuppression struct {
	Kind          string `json:"kind"`
	Justification string `json:"justification"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   *sarifRegion  `json:"region,omitempty"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	Line   int `json:"startLine"`
	Column int `json:"startColumn,omitempty"`
}

// sarifPlace is where a result lies: nowhere, in a file, or in a line of it.
func sarifPlace(file string, line, column int) []sarifLocation {
	if file == "" {
		return nil
	}
	uri := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		uri.Scheme = "file"
	}
	p := sarifPhysical{Artifact: sarifArtifact{uri.String()}}
	if line > 0 {
		p.Region = &sarifRegion{line, column}
	}
	return []sarifLocation{{p}}
}
