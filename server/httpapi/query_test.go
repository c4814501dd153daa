package httpapi

import (
	"reflect"
	"testing"

	"github.com/headgate/headgate"
)

// TestQuery: what is read without a map is what is read with one.
func TestQuery(t *testing.T) {
	short := 0
	for _, raw := range []string{
		"", "&", "status", "status=", "status=true", "status=false", "status=TRUE", "status=true&", "&status=true", "status=true&&at=true",
		"at=true&status=true", "status=true&at=true&outcome=true", "status=true&status=true", "status=true&status=false",
		"status=true&at=false", "status=true=true", "st%61tus=true", "status=%74rue", "status=true;at=true", "status=%", "other=true", "status=true&other=true",
	} {
		for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund, headgate.OpReset} {
			got, problem := readQuery(raw, op)
			want, wrong := readAnyQuery(raw, op)
			if got != want || !reflect.DeepEqual(problem, wrong) {
				t.Errorf("%q for %v: %+v, %+v, want %+v, %+v", raw, op, got, problem, want, wrong)
			}
			if problem == nil && got != (wants{}) {
				short++
			}
		}
	}
	if short == 0 {
		t.Error("no query set anything")
	}
}
