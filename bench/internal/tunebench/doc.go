// Package tunebench measures headgate load beside other load generators, and headgate replay
// beside other readers of access logs.
//
// # Basics
//
//	text, err := tunebench.Load(ctx, work)
//	fmt.Println(text)
//
// # Caveats
//
// Programs that are not installed are left out of the tables, which say so. Generators run
// beside the server that they ask, on the same cores.
package tunebench
