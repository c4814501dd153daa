package cli

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/errtext"
)

// convert is the command that writes policy files.
type convert struct {
	Envoy convertEnvoy `cmd:"" help:"Convert an envoyproxy/ratelimit configuration to a policy file."`
}

// convertEnvoy is the command that converts the files that serve --envoy-config reads.
type convertEnvoy struct {
	Dir string `arg:"" help:"Directory with the configuration: all files ending in .yaml."`
}

// Help is the detailed help.
func (convertEnvoy) Help() string {
	return "Prints a policy file that limits the same Envoy requests under the same counters. Standard error lists what could not be converted. To use the configuration as it is, run headgate serve --envoy-config DIR.\n\n" +
		"Exit codes: 0 all converted; 1 something was not; 2 the configuration has mistakes."
}

// Run writes the policy.
func (k *convertEnvoy) Run(c *call) error {
	text, lost, err := config.ConvertEnvoy(k.Dir)
	if err != nil {
		return envoyFailure(err)
	}
	fmt.Fprintf(c.stdout, "# What %s says, as rules. They match what Envoy asks, over gRPC.\n%s", k.Dir, text)
	for _, m := range lost {
		fmt.Fprintf(c.stderr, "%s\n", m)
	}
	if len(lost) > 0 {
		return &failure{code: CodeNo, text: count(len(lost), "thing") + " could not be written as rules", hint: "headgate serve --envoy-config takes the configuration as it is"}
	}
	return nil
}

// envoyFailure adds a hint to an error in a configuration of envoyproxy/ratelimit. It returns all
// other errors unchanged.
func envoyFailure(err error) error {
	var file *config.Error
	switch {
	case errors.As(err, &file):
		return &failure{code: CodeUsage, places: file.Error(), text: "the configuration has " + count(len(file.Mistakes), "mistake"), hint: "docs/envoy.md says what is read"}
	case isFileError(err):
		return usage(errtext.Text(err), "give the directory of the configuration of envoyproxy/ratelimit")
	}
	return err
}
