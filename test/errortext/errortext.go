package errortext

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
)

// may lists the files that may read the text of an error, each for a reason.
var may = []string{
	"internal/errtext/errtext.go",             // It takes the library's name off, for people.
	"store/redis/internal/refusal/refusal.go", // Redis sends errors as text and has no other code.
}

// outside are directories whose programs are for tests, measurements and examples, or
// are none of the project's.
var outside = []string{"bench", "bin", "examples", "test", "testdata", ".git", "node_modules"}

// Find returns one line for each place in the Go files of the tree where a program reads
// an error's text.
func Find(tree fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(outside, d.Name()) || strings.HasSuffix(d.Name(), "test")): // such as storetest
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), slices.Contains(may, path):
			return nil
		}
		source, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		here, err := findIn(path, source)
		found = append(found, here...)
		return err
	})
	return found, err
}

func findIn(path string, source []byte) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, declared := range file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		texts := textsIn(f.Body)
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if read := reading(n); slices.ContainsFunc(read, func(x ast.Expr) bool { return isText(x, texts) }) {
				found = append(found, fmt.Sprintf("%s: the text of an error is read; use errors.Is, errors.As or the fields of an error", set.Position(n.Pos())))
			}
			return true
		})
	}
	return found, nil
}

// textsIn returns the names of the variables that hold the text of an error.
func textsIn(body *ast.BlockStmt) map[string]bool {
	texts := make(map[string]bool)
	ast.Inspect(body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != len(a.Rhs) {
			return true
		}
		for i, to := range a.Lhs {
			if name, ok := to.(*ast.Ident); ok && isText(a.Rhs[i], nil) {
				texts[name.Name] = true
			}
		}
		return true
	})
	return texts
}

// isText reports whether the expression is the text of an error: err.Error(), or one of
// the variables.
func isText(x ast.Expr, texts map[string]bool) bool {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return isText(x.X, texts)
	case *ast.Ident:
		return texts[x.Name]
	case *ast.CallExpr:
		method, ok := x.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Error" && len(x.Args) == 0
	}
	return false
}

// reading returns the expressions whose text the node looks into, if any.
func reading(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			if isNil(n.X) || isNil(n.Y) {
				return nil // The method Error of a client's answer returns an error.
			}
			return []ast.Expr{n.X, n.Y}
		}
	case *ast.SwitchStmt:
		if n.Tag != nil {
			return []ast.Expr{n.Tag}
		}
	case *ast.IndexExpr:
		return []ast.Expr{n.X}
	case *ast.SliceExpr:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return nil
		}
		if of, ok := f.X.(*ast.Ident); ok && of.Name == "strings" || strings.HasPrefix(f.Sel.Name, "Match") || strings.HasPrefix(f.Sel.Name, "Find") {
			return n.Args
		}
	}
	return nil
}

func isNil(x ast.Expr) bool {
	name, ok := x.(*ast.Ident)
	return ok && name.Name == "nil"
}
