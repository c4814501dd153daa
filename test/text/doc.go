// Package text finds words that must not stay in the project's files: paths of
// one developer's machine, tests that skip themselves, and promises to finish
// something later.
//
// # Basics
//
// [Find] reads every text file below a directory and returns one line for each
// place. The test of this package runs it over the project.
//
// # Caveats
//
// What is built (bin) and what belongs to version control is left out, and so is
// whatever is not text. A file of test data may contain anything, so testdata
// directories are searched for machine paths only.
package text
