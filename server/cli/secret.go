package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/app"
)

// hashKeys has the flags of every command that reads policies.
type hashKeys struct {
	HashKey        string `help:"Key for hashing API keys and tokens before they are stored: 16 bytes or more, the same on all servers that share a store. Better kept in a file or in the environment." placeholder:"KEY" env:"HEADGATE_HASH_KEY"`
	HashKeyFile    string `help:"File with the hash key." placeholder:"FILE" env:"HEADGATE_HASH_KEY_FILE"`
	OldHashKey     string `help:"Previous hash key, during a rolling change of the key; none if there was none." placeholder:"KEY" env:"HEADGATE_OLD_HASH_KEY"`
	OldHashKeyFile string `help:"File with the previous hash key." placeholder:"FILE" env:"HEADGATE_OLD_HASH_KEY_FILE"`
}

// read returns the hash key and the previous one; "" means none.
func (h *hashKeys) read() (key, old string, err error) {
	if key, err = secretOf("hash key", h.HashKey, h.HashKeyFile); err != nil {
		return "", "", err
	}
	old, err = secretOf("old hash key", h.OldHashKey, h.OldHashKeyFile)
	return key, old, err
}

// policy reads a policy file, or the sample policy if none is named.
func (h *hashKeys) policy(file string) (*policy.Set, error) {
	key, old, err := h.read()
	if err != nil {
		return nil, err
	}
	return app.LoadPolicy(file, key, old)
}

// readToken reads a token from the file, or from an environment variable if no file is given. A
// flag would show the token to every user of the machine.
func readToken(what, variable, file string) (string, error) {
	return secretOf(what, os.Getenv(variable), file)
}

// maxSecretFile is more than the size of any file with a secret.
const maxSecretFile = 4 << 10

// secretOf returns the given secret, or the contents of the file if one is named.
func secretOf(what, given, file string) (string, error) {
	if file == "" {
		return given, nil
	}
	if given != "" {
		return "", usage(fmt.Sprintf("the %s and a file with it are both given", what), "leave one of them out; either may come from the environment")
	}
	const hint = "the file has the secret, and nothing else, on one line"
	info, err := os.Stat(file)
	if err != nil {
		return "", usage("the "+what+" cannot be read: "+errtext.Text(err), hint)
	}
	if info.Mode().IsRegular() && info.Size() > maxSecretFile {
		return "", usage(fmt.Sprintf("the file with the %s, %s, has %d bytes, must have at most %d", what, file, info.Size(), maxSecretFile), hint)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usage("the "+what+" cannot be read: "+errtext.Text(err), hint)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", usage("the file with the "+what+", "+file+", is empty", hint)
	}
	return secret, nil
}
