package servicebench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Echoes are the servers that Headgate's is held against. The program is one whose
// "echo" command calls [Serve]: the benchmark itself.
func Echoes(program string) []Contender {
	return []Contender{
		{
			Name: "net/http JSON echo", Role: Floor,
			Note:    "decodes the same request with encoding/json and encodes it again",
			Command: []string{program, "echo", "-listen", "ADDR", "-handler", "json"},
		},
		{
			Name:    "net/http echo of bytes",
			Note:    "reads the body and writes it back: what HTTP alone costs",
			Command: []string{program, "echo", "-listen", "ADDR", "-handler", "bytes"},
		},
	}
}

// Headgate builds the server from the module at source, puts it and its policy
// into dir, and returns it as a contender over the memory store: once asked by
// rule and key, once by a descriptor.
func Headgate(ctx context.Context, source, dir string) ([]Contender, error) {
	binary, err := Build(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(Policy), 0o600); err != nil {
		return nil, fmt.Errorf("servicebench: %w", err)
	}
	command := []string{binary, "serve", "--config", policy, "--listen", "ADDR", "--store", "memory"}
	return []Contender{
		{
			Name: "Headgate, by rule and key", Role: Ours, Command: command, Body: byRule,
			Note: `POST /v1/check with {"checks": [{"rule", "key", "cost"}]}: validates, decides in the memory store, answers with the state of the limit`,
		},
		{
			Name: "Headgate, by descriptor", Role: Ours, Command: command, Body: byDescriptor,
			Note: `POST /v1/check with {"descriptor": {"api_key"}, "cost"}: finds the rules and keys that apply as well`,
		},
	}, nil
}
