package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/spelling"
)

// good are the values that could be read.
func good[T any](v []entry[T]) []T {
	var all []T
	for _, e := range v {
		if e.good {
			all = append(all, e.value)
		}
	}
	return all
}

// filledText is a text that is not empty.
func filledText() value[string] {
	return plainText(schema{"minLength": 1}, func(s string) (string, error) {
		if s == "" {
			return "", fmt.Errorf("this is an empty text; write something or leave the field out")
		}
		return s, nil
	})
}

// pathForms are forms of paths that do not exclude each other.
func pathForms() value[httplimit.PathForm] {
	words := listOf(oneOf(spelling.Words()...), 1, len(spelling.Words()))
	return value[httplimit.PathForm]{words.schema, func(r *reader, name string, n *node) (httplimit.PathForm, bool) {
		list, ok := words.read(r, name, n)
		if !ok {
			return 0, false
		}
		forms, problem := spelling.ParseForms(good(list))
		if problem != "" {
			r.add(n.at, "%s: %s", name, problem)
		}
		return httplimit.PathForm(forms), problem == ""
	}}
}

// algorithmText is an algorithm by which tokens are signed so that who verifies them
// cannot make them.
func algorithmText() value[string] {
	return oneOf("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
}

// headerText is the name of a header.
func headerText() value[string] {
	pattern := regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	return plainText(schema{"pattern": pattern.String()}, func(s string) (string, error) {
		if !pattern.MatchString(s) {
			return "", fmt.Errorf("%q is not the name of a header", s)
		}
		return s, nil
	})
}

// keyText is a header with an API key, perhaps with the scheme that precedes the key.
func keyText() value[string] {
	return plainText(schema{"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+(: *[A-Za-z0-9!#$%&'*+.^_`|~-]+ *)?$"}, func(s string) (string, error) {
		if problem := new(identity.Keys).Add(s, strings.ToLower); problem != "" {
			return "", errors.New(problem)
		}
		return s, nil
	})
}

// targetText is the address of a server.
func targetText() value[string] {
	return plainText(schema{"pattern": "^(https?|h2c)://[^/?#@]+/?$"}, func(s string) (string, error) {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
			return "", errors.New("this is not a target; write http://host:port, https://host:port or h2c://host:port")
		case u.User != nil:
			return "", fmt.Errorf("the target at %s has a user in it; set the header Authorization instead", u.Host)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
			return "", fmt.Errorf("the target at %s has more than a host; paths are passed on as they come", u.Host)
		}
		return s, nil
	})
}

// mapOf maps names of something to values.
func mapOf[T any](what string, most int, v value[T]) value[map[string]T] {
	s := schema{"type": "object", "additionalProperties": v.schema, "minProperties": 1, "maxProperties": most}
	return value[map[string]T]{s, func(r *reader, name string, n *node) (map[string]T, bool) {
		if n.kind != mapping || len(n.fields) == 0 || len(n.fields) > most {
			r.add(n.at, "%s is %s, must be a mapping with 1 to %d fields, each of them %s", name, describe(n), most, what)
			return nil, false
		}
		all := make(map[string]T, len(n.fields))
		for _, p := range n.fields {
			if _, twice := all[p.name]; twice {
				r.add(p.at, "%s %q is there twice; keep one", what, p.name)
			}
			if x, ok := v.read(r, p.name, p.value); ok {
				all[p.name] = x
			}
		}
		return all, true
	}}
}

func trueOrFalse() value[bool] {
	return value[bool]{schema{"type": "boolean"}, func(r *reader, name string, n *node) (bool, bool) {
		if n.kind != other || n.text != "true" && n.text != "false" {
			r.add(n.at, "%s is %s, must be true or false", name, describe(n))
			return false, false
		}
		return n.text == "true", true
	}}
}

// waitText is a duration of 1ms to gatewayfile.Longest.
func waitText() value[time.Duration] {
	s := schema{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`}
	return value[time.Duration]{s, func(r *reader, name string, n *node) (time.Duration, bool) {
		d, err := time.ParseDuration(n.text)
		switch {
		case n.kind == whole:
			r.add(n.at, "%s is %s without a unit; write %ss if seconds are meant", name, n.text, n.text)
		case n.kind != text || err != nil:
			r.add(n.at, "%s is %s, must be a time such as 500ms, 30s or 1m30s", name, describe(n))
		case d < time.Millisecond || d > gatewayfile.Longest:
			r.add(n.at, "%s is %s, must be 1ms to 24h", name, n.text)
		default:
			return d, true
		}
		return 0, false
	}}
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,15})(B|KiB|MiB|GiB)$`)

// unlimited is the word for a size without a bound.
const unlimited = "unlimited"

// noWord says that a size has to have a bound.
const noWord = math.MinInt64

// sizeText is a number of bytes, such as 512KiB. The word unlimited stands for
// none, unless that is noWord.
func sizeText(least, most, none int64) value[int64] {
	s := schema{"type": "string", "pattern": `^([0-9]{1,15}(B|KiB|MiB|GiB))$`}
	if none != noWord {
		s["pattern"] = `^([0-9]{1,15}(B|KiB|MiB|GiB)|` + unlimited + `)$`
	}
	units := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	return value[int64]{s, func(r *reader, name string, n *node) (int64, bool) {
		if n.kind == text && n.text == unlimited && none != noWord {
			return none, true
		}
		parts := sizePattern.FindStringSubmatch(n.text)
		if n.kind == whole {
			r.add(n.at, "%s is %s without a unit; write %sB if bytes are meant, or KiB, MiB or GiB", name, n.text, n.text)
			return 0, false
		}
		if n.kind != text || parts == nil {
			r.add(n.at, "%s is %s, must be a size such as 512KiB or 10MiB", name, describe(n))
			return 0, false
		}
		count, err := strconv.ParseInt(parts[1], 10, 64)
		unit := units[parts[2]]
		if err != nil || count > math.MaxInt64/unit || count*unit < least || count*unit > most {
			r.add(n.at, "%s is %s, must be %d to %d bytes", name, n.text, least, most)
			return 0, false
		}
		return count * unit, true
	}}
}
