package load

import (
	"fmt"
)

// conclude makes findings of the rounds.
func conclude(rounds []AuditRound) *Audit {
	a := &Audit{Rounds: rounds, Honest: true}
	for _, find := range []func([]AuditRound) Finding{findDenial, findRetry, findRemaining, findReset} {
		f := find(rounds)
		a.Honest = a.Honest && f.Outcome != Wrong
		a.Findings = append(a.Findings, f)
	}
	return a
}

func findDenial(rounds []AuditRound) Finding {
	f := Finding{About: "admitted", Outcome: Unknown, Text: "no request was denied"}
	most, wrong := 0, ""
	for i := range rounds {
		r := &rounds[i]
		most = max(most, r.Admitted)
		if r.Denied == "" {
			f.Text = fmt.Sprintf("no request was denied, of %d", most)
			continue
		}
		if f.Outcome == Unknown {
			f.Outcome = True
		}
		if r.understated > 0 {
			wrong = fmt.Sprintf("%d were admitted, of which the answers advertised less: the first said that %d of %d were left", r.Admitted, r.Remaining, r.Limit)
		}
	}
	switch {
	case wrong != "":
		f.Outcome, f.Text = Wrong, wrong
	case f.Outcome == True && rounds[0].Limit < 0:
		f.Outcome, f.Text = Unknown, fmt.Sprintf("%d were admitted before the first denial; no answer says how many may be", rounds[0].Admitted)
	case f.Outcome == True:
		f.Text = fmt.Sprintf("%d were admitted before the first denial; the limit advertised is %d, of which %d were left at first", rounds[0].Admitted, rounds[0].Limit, rounds[0].Remaining)
	}
	return f
}

func findRetry(rounds []AuditRound) Finding {
	f := Finding{About: "retry_after", Outcome: Unknown, Text: "there was no denial that says when to come again"}
	tried, lies, earlier, early := 0, 0, 0, 0
	for i := range rounds {
		r := &rounds[i]
		if r.RetryAfterMS > 0 && !r.InTime {
			f.Text = fmt.Sprintf("a denial said to wait for %.1f s, which is longer than the audit waits", r.RetryAfterMS/1000)
		}
		if r.InTime {
			tried++
			if !r.InTimeAdmitted {
				lies++
			}
		}
		if r.Earlier {
			earlier++
			if r.EarlierAdmitted {
				early++
			}
		}
	}
	switch {
	case tried > 0 && lies > 0:
		f.Outcome, f.Text = Wrong, fmt.Sprintf("in %d of %d rounds a request was denied when the time of Retry-After was over", lies, tried)
	case tried > 0:
		f.Outcome, f.Text = True, fmt.Sprintf("in %d rounds a request was admitted when the time of Retry-After was over", tried)
		if early > 0 {
			f.Text += fmt.Sprintf("; in %d of %d, halfway as well: clients wait for longer than they need to", early, earlier)
		}
	}
	return f
}

func findRemaining(rounds []AuditRound) Finding {
	f := Finding{About: "remaining", Outcome: Unknown, Text: "no answer says what is left"}
	over, answers := 0, 0
	for i := range rounds {
		r := &rounds[i]
		if r.Remaining < 0 || r.Denied == "" {
			continue
		}
		over += r.overstated
		answers += r.Admitted
	}
	switch {
	case over > 0:
		f.Outcome, f.Text = Wrong, fmt.Sprintf("%d of %d answers said that more was left than was admitted after them", over, answers)
	case answers > 0:
		f.Outcome, f.Text = True, fmt.Sprintf("what %d answers said was left, was admitted after them", answers)
	}
	return f
}

func findReset(rounds []AuditRound) Finding {
	f := Finding{About: "reset", Outcome: Unknown, Text: "no answer says when the limit is free again, or it is too long to wait for"}
	for i := range rounds {
		t := rounds[i].reset
		switch {
		case t == nil:
			continue
		case t.remaining < 0:
			f.Outcome, f.Text = Wrong, fmt.Sprintf("when the time of reset, %v, was over, a request was denied", t.wait)
			return f
		}
		f.Outcome, f.Text = True, fmt.Sprintf("when the time of reset, %v, was over, a request was admitted, and %d of %d were left", t.wait, t.remaining, t.limit)
	}
	return f
}
