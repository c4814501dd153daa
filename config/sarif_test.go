package config

import (
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
)

func TestSARIF(t *testing.T) {
	got, err := SARIF(
		[]Mistake{{"/a dir/p.yml", 3, 5, `a rule has no field "macth"; did you mean "match"?`}, {File: "p.yml", Text: "the file is too large"}},
		[]lint.Warning{
			{Code: lint.Uncaught, Rule: "login", Pos: policy.Position{File: "p.yml", Line: 2, Column: 5}, Text: "it does not bind", Ignored: "internal <network>"},
			{Code: lint.IdleIgnore, Text: "the policy ignores HG001"},
		}, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/sarif.json", append(got, '\n'))
	if none, err := SARIF(nil, nil, ""); err != nil || len(none) == 0 {
		t.Errorf("an empty report: %s, %v", none, err)
	}
}
