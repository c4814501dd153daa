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
	var run sarifRun
	driver := &run.Tool.Driver
	driver.Name, driver.Version = "headgate lint", version
	driver.Rules = append(driver.Rules, sarifRule{ID: "mistake", About: sarifText{"A server does not start with this policy."}})
	for _, c := range lint.Codes() {
		driver.Rules = append(driver.Rules, sarifRule{c.Code, sarifText{c.About}, lint.URL(c.Code)})
	}
	run.Results, run.ColumnKind = results, "unicodeCodePoints"
	return json.MarshalIndent(sarifReport{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}, "", "  ")
}

type sarifReport struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver struct {
			Name    string      `json:"name"`
			Version string      `json:"version,omitempty"`
			Rules   []sarifRule `json:"rules"`
		} `json:"driver"`
	} `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"`
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
	Physical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	} `json:"physicalLocation"`
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
	var at sarifLocation
	at.Physical.Artifact.URI = uri.String()
	if line > 0 {
		at.Physical.Region = &sarifRegion{line, column}
	}
	return []sarifLocation{at}
}
