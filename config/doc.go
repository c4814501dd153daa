// Package config reads policy files: YAML in, a policy.Set or every mistake out.
//
// # Basics
//
//	set, err := config.Load("policy.yml", policy.HashKey(key))
//	if err != nil {
//		return err // policy.yml:8:14: limit "20 pr 60s": write it as ...
//	}
//
// A file has rules, as docs/rules.md describes them, or the short form (limits), or both;
// lists that allow and deny; and a table of clients, which may be a file of its own.
// [Read] also says which files a policy was made of, and its hash. [Schema] describes the
// file to editors; headgate.schema.json is its copy. [Format] writes a set as a file,
// [SARIF] writes mistakes and warnings for code hosts, and [Sample] is a file to begin
// with. [ReadGateway] reads the gateway file in the same way.
//
// # Caveats
//
// Loading says what is wrong; package lint says what is valid and unlikely to be
// meant. Run both.
//
// Unknown fields are mistakes, so that a misspelled limit is never a limit that
// silently is not there. YAML's anchors and aliases work within bounds; merge
// keys, tags, directives and further documents are refused.
package config
