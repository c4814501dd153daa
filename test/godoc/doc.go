// Package godoc holds the code in package comments against the packages that it
// names: what a reader copies from there must exist.
//
// # Basics
//
// [Unknown] reads every package below a directory and returns one line for each
// name that is not there. The test of this package runs it over the project.
//
// # Caveats
//
// Packages are known by the name in their package clause, and only what they export is
// looked up, not fields, methods and arguments: examples, which the go command runs,
// are held to more.
package godoc
