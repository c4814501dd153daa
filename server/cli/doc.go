// Package cli is the headgate command, one file for each of its commands.
//
// # Basics
//
// [Run] does everything, given the words of the command line, and returns the
// exit code:
//
//	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, version))
//
// # Caveats
//
// What a command was asked for goes to stdout, all else to stderr. Exit codes
// are part of the interface: 0 is yes, 1 is no (denied, or warnings where they
// count), 2 is a mistake of the caller's, 3 is something that is not there.
package cli
