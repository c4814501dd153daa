package workload

import "github.com/headgate/headgate"

// Rules returns the limits as Headgate's rules: a token bucket for each class,
// named after it.
func (q Limits) Rules() ([classes]*headgate.Rule, error) {
	var rules [classes]*headgate.Rule
	for c := range q {
		var err error
		rules[c], err = headgate.NewRule(Class(c).String(), headgate.Per(q[c].Count, q[c].Period))
		if err != nil {
			return rules, err
		}
	}
	return rules, nil
}
