package closest

import "testing"

func TestWord(t *testing.T) {
	words := []string{"tenant", "match", "limits", "ip", "api_key"}
	for written, want := range map[string]string{
		"tennant": "tenant", "macth": "match", "lim": "limits", "limit": "limits", "apikey": "api_key",
		"other": "", "": "", "pi": "", "tenant": "tenant",
	} {
		if got := Word(written, words); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}

// TestSlip: names that may well be meant are no slips.
func TestSlip(t *testing.T) {
	words := []string{"api_key", "authorization", "host", "ip", "method", "path", "route", "token", "user"}
	for written, want := range map[string]string{
		"apikey": "api_key", "API-Key": "api_key", "Ip": "ip", "apikye": "api_key", "api_kay": "api_key", "rout": "route",
		"rouet": "route", "users": "user", "authorisation": "authorization", "autorisation": "authorization",
		"user": "", "id": "", "tip": "", "tier": "", "role": "", "team": "", "tenant": "", "user_id": "", "client": "", "": "",
	} {
		if got := Slip(written, words); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
	if got := Slip("zone_b", []string{"zone_a"}); got != "" {
		t.Errorf("zone_b is taken for %q", got)
	}
}
