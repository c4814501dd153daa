package cli

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// values parses times, numbers and choices, and collects their errors, because the parser itself
// would stop at the first one. "" is kept for a valid value on the command line, which makes the
// value of the environment irrelevant.
type values map[*kong.Value]string

// options makes the parser use values. A flag of the type choice has its allowed words in a tag.
func (v values) options() []kong.Option {
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[time.Duration](), v.reading("time", func(word string, _ *kong.Tag, into reflect.Value) string {
			d, err := time.ParseDuration(word)
			if err != nil {
				return "must be a time with its unit, such as 500ms, 10s or 2m"
			}
			into.SetInt(int64(d))
			return ""
		})),
		kong.KindMapper(reflect.Int64, v.reading("number", func(word string, _ *kong.Tag, into reflect.Value) string {
			n, err := strconv.ParseInt(word, 10, 64)
			if errors.Is(err, strconv.ErrRange) {
				return "which is out of every range"
			}
			if err != nil {
				return "must be a whole number"
			}
			into.SetInt(n)
			return ""
		})),
		kong.NamedMapper("choice", v.reading("word", func(word string, tag *kong.Tag, into reflect.Value) string {
			choices := strings.Fields(tag.Get("of"))
			if !slices.Contains(choices, word) {
				return "must be one of " + strings.Join(choices, ", ")
			}
			into.SetString(word)
			return ""
		})),
	}
}

// reading returns a mapper for one kind of values. read returns what is wrong, or "".
func (v values) reading(kind string, read func(word string, tag *kong.Tag, into reflect.Value) string) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var word string
		if err := ctx.Scan.PopValueInto(kind, &word); err != nil {
			return err
		}
		// The parser reads flags first. Then it writes environment variables and defaults straight
		// into the fields.
		if target.Addr().Pointer() != ctx.Value.Target.Addr().Pointer() {
			v[ctx.Value] = ""
		} else if _, given := v[ctx.Value]; given {
			return nil
		}
		if wrong := read(word, ctx.Value.Tag, target); wrong != "" {
			v[ctx.Value] = fmt.Sprintf("--%s is %q, %s", ctx.Value.Name, word, wrong)
		}
		return nil
	})
}

// wrong returns the errors in the values of a command, in the order of its flags. Environment
// variables of other commands do not count.
func (v values) wrong(parsed *kong.Context) (mistakes []string) {
	for _, flag := range parsed.Flags() {
		if mistake := v[flag.Value]; mistake != "" {
			mistakes = append(mistakes, mistake)
		}
	}
	return mistakes
}
