// Package imports knows which part of the project may import which, and finds the
// imports that break the rules.
//
// # Basics
//
// Each directory of the project is a room, and each room lists the rooms that it
// may import; see [Rooms]. [Load] reads the packages of every module from the go
// command, and [Check] returns one line for each import that the table does not
// allow, each package that has no room, and each name that says nothing.
//
// The tests of this package run both over the project itself.
//
// # Caveats
//
// Only what a package itself imports is checked, not what its tests import: an
// example of the core may well show it with a store.
package imports
