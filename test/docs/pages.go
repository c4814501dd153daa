package docs

import "fmt"

// Pages are the pages of docs/reference by their names, as root, the directory of the project,
// has them.
func Pages(root string) (map[string][]byte, error) {
	pages := make(map[string][]byte)
	for name, write := range map[string]func(root string) ([]byte, error){
		"policy-fields.md":  policyFields,
		"gateway-fields.md": gatewayFields,
		"lint.md":           warnings,
		"http.md":           paths,
		"commands.md":       commands,
	} {
		text, err := write(root)
		if err != nil {
			return nil, fmt.Errorf("docs: %s: %w", name, err)
		}
		pages[name] = text
	}
	return pages, nil
}
