package docs

import (
	"os"
	"path/filepath"
)

// policyFields is the page of the fields of a policy file.
func policyFields(root string) ([]byte, error) {
	return fields(root, "headgate.schema.json", "Fields of a policy file", `
All fields, each with what it may hold. [Rules](../rules.md) explains them with examples. The same
as JSON Schema is `+"`config/headgate.schema.json`"+`, which editors complete and check by. The
loader and the schema are made from one table.

A star marks fields that must be there. A dot leads from a field to the fields of its mapping, and
NAME stands for any name: `+"`rules.match.NAME`"+` is what stands below an entry's name, below match,
in a rule. A scalar is a text, a number or a boolean.`)
}

// gatewayFields is the page of the fields of a gateway file.
func gatewayFields(root string) ([]byte, error) {
	return fields(root, "gateway.schema.json", "Fields of a gateway file", `
All fields, each with what it may hold. [The gateway](../gateway.md) explains them with examples.
The same as JSON Schema is `+"`config/gateway.schema.json`"+`, which editors complete and check by.
The loader and the schema are made from one table. A star marks fields that must be there.`)
}

// fields is the page of the fields that a schema has.
func fields(root, schema, title, about string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, "config", schema))
	if err != nil {
		return nil, err
	}
	file, err := parse(text)
	if err != nil {
		return nil, err
	}
	p := newPage(title, "config/"+schema, about)
	var s shapes
	p.say("## The file\n\n")
	s.fields(p, file, "")
	// Rows may name further sections.
	for i := 0; i < len(s.sections); i++ {
		p.say("## `%s`\n\n", s.sections[i].title)
		s.fields(p, s.sections[i].object, s.sections[i].title)
	}
	return p.bytes(), nil
}
