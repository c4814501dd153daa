package dashboard

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write docs/lab.html instead of comparing it")

// labPage is the Lab as one file that opens without a server: its parts are those of the
// dashboard.
func labPage(t *testing.T) []byte {
	t.Helper()
	part := func(name string) string {
		text, err := files.ReadFile("static/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	imports, exports := regexp.MustCompile(`(?m)^import .*\n`), regexp.MustCompile(`(?m)^export `)
	script := exports.ReplaceAllString(imports.ReplaceAllString(part("lib.js")+part("lab.js"), ""), "")
	for name, text := range map[string]string{"a script": script + part("vendor/wasm_exec.js"), "a style": part("style.css") + part("lab.css")} {
		if strings.Contains(text, "</s") {
			t.Fatalf("%s would end where it must not", name)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!doctype html>
<!-- Written by make lab from server/dashboard: change it there. -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'unsafe-inline'">
<title>The Lab of Headgate</title>
<style>
%s%s
body { display: block; } main { margin: 0 auto; }
</style>
</head>
<body>
<main id="main"><p>The Lab needs JavaScript and WebAssembly.</p></main>
<script type="text/plain" id="wasm">%s</script>
<script>
%s
</script>
<script type="module">
%s
globalThis.headgateWasm = async () => {
  const zipped = Uint8Array.from(atob(document.getElementById("wasm").textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
};
const root = document.createElement("div"), draws = [];
document.getElementById("main").replaceChildren(root);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draws.forEach((f) => f()));
show({ root, themed: (f) => draws.push(f), leave: () => {} }).then(() => { document.getElementById("main").dataset.shown = "/lab"; });
</script>
</body>
</html>
`, part("style.css"), part("lab.css"), base64.StdEncoding.EncodeToString([]byte(part("lab.wasm.gz"))), part("vendor/wasm_exec.js"), script)
	return b.Bytes()
}

// TestLabPage: docs/lab.html is made of what the dashboard serves.
func TestLabPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "lab.html")
	want := labPage(t)
	if *write {
		if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // Everybody may read it.
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/lab.html is not made of the dashboard's parts (%v): make lab", err)
	}
}
