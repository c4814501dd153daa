// Package leakwait lets goroutines end before goleak looks for leaks. A TestMain
// says
//
//	goleak.VerifyTestMain(leakwait.After(m, goleak.Find))
//
// What ends a little after the tests, such as a connection whose server lets the
// client read the last answer, is no leak; goleak itself waits for half a second.
// goleak is handed in, so that this module requires nothing.
package leakwait

// attempts is how often goleak, which waits for half a second each time, is asked:
// twenty seconds in all.
const attempts = 40

// Tests are the tests of a package: a [testing.M].
type Tests interface{ Run() int }

// After returns tests whose Run does not return before find, which is goleak.Find,
// finds nothing, or has been asked often enough. What it returns is the exit code
// of the tests, whatever was found.
func After[Option any](tests Tests, find func(...Option) error) Tests {
	return run(func() int {
		code := tests.Run()
		for range attempts {
			if find() == nil {
				break
			}
		}
		return code
	})
}

type run func() int

func (r run) Run() int { return r() }
