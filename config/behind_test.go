package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy/lint"
)

func TestBehind(t *testing.T) {
	t.Parallel()
	const rules = "\nrules: [{name: a, match: {route: POST /login.php}, per: all, limits: [1 per 1m]}]\n"
	for field, want := range map[string][]string{"behind: php": {"php"}, "behind: [nginx, koa]": {"nginx", "koa"}, "": nil} {
		set, err := Parse("policy.yml", []byte(field+rules))
		if err != nil || !slices.Equal(set.Behind(), want) {
			t.Errorf("%s is read as %v, %v", field, set, err)
			continue
		}
		text, err := Format(set)
		if again, wrong := Parse("again.yml", text); err != nil || wrong != nil || !slices.Equal(again.Behind(), want) {
			t.Errorf("%s is written as %s, %v, %v", field, text, err, wrong)
		}
		warned := slices.ContainsFunc(lint.All(set), func(w lint.Warning) bool { return w.Code == lint.Behind })
		if warned != (field != "behind: php") {
			t.Errorf("%s: lint warns of a script: %v", field, warned)
		}
	}
	if _, err := Parse("policy.yml", []byte("behind: expres"+rules)); err == nil || !strings.Contains(err.Error(), `did you mean "express"?`) {
		t.Errorf("a misspelt server is %v", err)
	}
}
