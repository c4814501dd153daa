package config

import (
	"bytes"
	"encoding/json"
)

// Schema returns the JSON Schema (draft 2020-12) of a policy file, made from the
// table that the loader reads by. It is what headgate.schema.json holds.
//
// A schema sees the shape of a file and the bounds of single values. What only
// the loader sees, such as two rules of one name, passes the schema.
func Schema() []byte {
	s := policyFile().schema
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Headgate policy"
	s["description"] = "The rules by which Headgate limits requests."
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		// The schema holds texts, numbers and lists of them, all of which encode.
		panic(err)
	}
	return b.Bytes()
}
