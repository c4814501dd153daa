package admission_test

import (
	"testing"

	"github.com/headgate/headgate/internal/admission"
)

func TestIsEvents(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{
		"text/event-stream":                 true,
		"text/event-stream; charset=utf-8":  true,
		"Text/Event-Stream ;charset=utf-8":  true,
		"\ttext/event-stream":               true,
		"text/event-stream-of-another-kind": false,
		"text/plain; text/event-stream":     false,
		"":                                  false,
	} {
		if got := admission.IsEvents([]string{kind}); got != want {
			t.Errorf("%q: %t, want %t", kind, got, want)
		}
	}
	if admission.IsEvents(nil) {
		t.Error("no header: true, want false")
	}
}
