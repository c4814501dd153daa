// Package spelling reads the paths of requests, for everything that decides on a request
// by its path and leaves it to another server to serve it.
//
// # Basics
//
// Servers read one path in different ways: some cut off what stands behind a semicolon,
// some decode twice, some resolve "..", and they do so in different orders. Whoever counts
// a request by one reading of its path can be led past a rule by a path that the server
// reads in another way. So [Read] accepts a path only if all common servers read it
// alike, and says otherwise what in it they disagree about, and where:
//
//	p, err := spelling.Read("/caf%C3%A9", 0)       // p.Text is "/café"
//	p, err := spelling.Read("/x/%2e%2e/admin", 0)  // err: a dot segment at byte 4
//
// [Forms] are what one's own servers are known to do. They make paths readable that
// would be refused without, and paths the same that the servers take for the same.
// [Behind] returns them for servers by their names.
//
// # Caveats
//
// No path shows whether servers take "/Login" or "/login/" for "/login". Without Forms that
// say so, they are different paths.
package spelling
