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

A dot leads from a field to the fields of its mapping, and NAME stands for any name: the title
`+"`rules.match.NAME`"+` is for what stands below an entry's name, below match, in a rule.`)
}

// gatewayFields is the page of the fields of a gateway file.
func gatewayFields(root string) ([]byte, error) {
	return fields(root, "gateway.schema.json", "Fields of a gateway file", `
All fields, each with what it may hold. [The gateway](../gateway.md) explains them with examples.
The same as JSON Schema is `+"`config/gateway.schema.json`"+`, which editors complete and check by.
The loader and the schema are made from one table.`)
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
	head := []string{"field", "value", "meaning"}
	var s shapes
	p.say("## The file\n\n")
	p.table(head, s.fieldRows(file, ""))
	// Rows may name further sections.
	for i := 0; i < len(s.sections); i++ {
		p.say("## `%s`\n\n", s.sections[i].title)
		p.table(head, s.fieldRows(s.sections[i].object, s.sections[i].title))
	}
	return p.bytes(), nil
}
