// Package cli is the headgate command, one file for each of its commands.
//
// # Basics
//
// [Run] does everything, given the arguments of the command line, and returns the exit code:
//
//	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, version))
//
// # Caveats
//
// Results go to stdout, and everything else to stderr. Exit codes are part of the interface: 0
// means yes, 1 means no (denied, or warnings where they count), 2 means that the caller has made a
// mistake, and 3 means that something is not available.
package cli
