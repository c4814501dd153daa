package godoc

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// inner are the directories of packages that are for the project only. Their comments
// are read, but their names may be those of somebody else's packages, or of variables.
var inner = []string{"bench", "examples", "server", "test"}

// packages are the exported names of each package, and comments those of packages, by
// the file that they stand in.
type packages struct {
	names    map[string]map[string]bool
	comments map[string]string
}

// Unknown returns one line, "file: name", for each name of a package below root that
// is in the code of a package comment, and is not exported by that package.
func Unknown(root fs.FS) ([]string, error) {
	all := packages{make(map[string]map[string]bool), make(map[string]string)}
	if err := fs.WalkDir(root, ".", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "node_modules" || file == ".git" || file == "bin"):
			return fs.SkipDir
		case !e.Type().IsRegular() || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		return all.read(root, file)
	}); err != nil {
		return nil, fmt.Errorf("godoc: %w", err)
	}
	var unknown []string
	for file, text := range all.comments {
		for _, name := range all.unknown(text) {
			unknown = append(unknown, file+": "+name)
		}
	}
	return unknown, nil
}

// read adds what a file exports, and its package comment.
func (p *packages) read(root fs.FS, file string) error {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if parsed.Doc != nil {
		p.comments[file] = parsed.Doc.Text()
	}
	if top, _, _ := strings.Cut(file, "/"); slices.Contains(inner, top) {
		return nil
	}
	names := p.names[parsed.Name.Name]
	if names == nil {
		names = make(map[string]bool)
		p.names[parsed.Name.Name] = names
	}
	for _, declaration := range parsed.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return nil
}

// assigned is the beginning of a line that makes variables. One that is called like a
// package stands for it in the rest of the code.
var assigned = regexp.MustCompile(`(?m)^\s*(\w+(?:, \w+)*)\s*:=`)

// qualified is an exported name of a package. What stands before the dot is more
// than that in a().B and a.b.C.
var qualified = regexp.MustCompile(`(?:^|[^\w.)\]])(\w+)\.([A-Z]\w*)`)

// unknown returns the names in the code of a comment that their packages do not have.
func (p *packages) unknown(text string) []string {
	var unknown []string
	for _, block := range new(comment.Parser).Parse(text).Content {
		code, ok := block.(*comment.Code)
		if !ok {
			continue
		}
		variables := make(map[string]bool)
		for _, match := range assigned.FindAllStringSubmatch(code.Text, -1) {
			for _, name := range strings.Split(match[1], ", ") {
				variables[name] = true
			}
		}
		for _, match := range qualified.FindAllStringSubmatch(code.Text, -1) {
			if names, ours := p.names[match[1]]; ours && !names[match[2]] && !variables[match[1]] {
				unknown = append(unknown, match[1]+"."+match[2])
			}
		}
	}
	return unknown
}
