package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestBehind(t *testing.T) {
	t.Parallel()
	set, err := New(nil, Behind("nginx", "express"))
	if err != nil || !slices.Equal(set.Behind(), []string{"nginx", "express"}) {
		t.Errorf("%v, %v", set, err)
	}
	if _, err := New(nil, Behind("expres")); err == nil || !strings.Contains(err.Error(), `did you mean "express"?`) {
		t.Errorf("a misspelt server is %v", err)
	}
}
