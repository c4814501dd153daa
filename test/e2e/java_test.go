package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// javaTools are the jars that scripts/install-test-programs fetches for client/java.
const javaTools = "java-client-1"

// javaPath compiles sources of Java with the package, and returns where programs find all of it.
func javaPath(t *testing.T, sources ...string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "client", "java"))
	if err != nil {
		t.Fatal(err)
	}
	out, jars := t.TempDir(), filepath.Join(tool(t, javaTools), "*")
	args := []string{"-J-XX:TieredStopAtLevel=1", "-parameters", "--release", "17", "-Xlint:all,-processing,-serial,-classfile", "-Werror", "-cp", jars, "-d", out}
	args = append(args, sources...)
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".java") && (len(sources) == 0 || !strings.HasPrefix(path, filepath.Join(dir, "tests"))) {
			args = append(args, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "javac", args...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	resources := filepath.Join(dir, "headgate-spring-boot-starter", "src", "main", "resources")
	return strings.Join([]string{out, resources, jars}, string(filepath.ListSeparator))
}

// runJUnit runs the tests of Java that were compiled, to their end.
func runJUnit(t *testing.T, path string, env ...string) {
	t.Helper()
	compiled, _, _ := strings.Cut(path, string(filepath.ListSeparator))
	cmd := command(t, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "org.junit.platform.console.ConsoleLauncher", "execute",
		"--scan-classpath", compiled, "--details=summary", "--disable-banner", "--disable-ansi-colors", "--fail-if-no-tests")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " 0 tests skipped ") {
		t.Errorf("the tests of Java: %v\n%s", err, out)
	}
}

// TestJavaPackage: the tests of the package for Java, against this program, and real releases of Spring
// Boot and Tomcat.
func TestJavaPackage(t *testing.T) {
	t.Parallel()
	runJUnit(t, javaPath(t), "HEADGATE_PROGRAM="+binary)
}
