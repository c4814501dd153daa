// Package errortext finds places where a program reads the text of an error: a decision
// that depends on the words of a sentence breaks when somebody improves the sentence.
//
// # Basics
//
// [Find] parses the Go files below a directory, without tests, and returns one line for
// each place. The test of this package runs it over the project. Errors are told apart
// with errors.Is and errors.As; [headgate.InvalidError] has the fields that are wrong.
//
// # Caveats
//
// It looks at one function at a time: the text of an error that is passed on as a string
// is not followed. Only functions of package strings, regular expressions and comparisons
// count as reading.
package errortext
