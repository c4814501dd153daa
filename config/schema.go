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
	return encodeSchema(policyFile().schema, "Headgate policy", "The rules by which Headgate limits requests.")
}

// GatewaySchema returns the JSON Schema of a gateway file, as [Schema] does that of
// a policy file. It is what gateway.schema.json holds.
func GatewaySchema() []byte {
	return encodeSchema(gatewayFile().schema, "Headgate gateway", "What Headgate's gateway passes requests on to, and how.")
}

func encodeSchema(s schema, title, description string) []byte {
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = title
	s["description"] = description
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
