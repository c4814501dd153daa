package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// document is an SPDX document, version 2.3: the fields that it must have, and those that say
// where a package is from.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []component    `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// component is a package in the words of SPDX: the program, or a module in it.
type component struct {
	ID            string     `json:"SPDXID"`
	Name          string     `json:"name"`
	Version       string     `json:"versionInfo"`
	Download      string     `json:"downloadLocation"`
	FilesAnalyzed bool       `json:"filesAnalyzed"`
	Purpose       string     `json:"primaryPackagePurpose"`
	Source        string     `json:"sourceInfo,omitempty"`
	Checksums     []checksum `json:"checksums,omitempty"`
	References    []external `json:"externalRefs"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const documentID = "SPDXRef-DOCUMENT"

// writeSBOM writes the SPDX document of a Go program into the file. The list of modules is what the
// linker has put into the program, so it holds what was built, and not what a go.mod allows. The
// repository's own modules have the version that is given: in a workspace the linker knows none.
// The document is as old as the program, so that it is the same whenever it is written.
func writeSBOM(program, file, version string) error {
	stat, err := os.Stat(program)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", program, err)
	}
	sum := sha256.Sum256(text)
	out, err := json.MarshalIndent(describe(info, filepath.Base(program), version, hex.EncodeToString(sum[:]), stat.ModTime()), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(out, '\n'), 0o644)
}

func describe(info *debug.BuildInfo, program, version, sum string, created time.Time) *document {
	main := entry("SPDXRef-program", info.Main.Path, version)
	main.Purpose = "APPLICATION"
	main.Checksums = []checksum{{"SHA256", sum}}
	d := &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: program + " " + version,
		Namespace:     "https://" + prefix + "/spdx/" + sum,
		Creation:      creation{created.UTC().Format(time.RFC3339), []string{"Organization: Headgate", "Tool: headgate-release"}},
		Packages:      []component{main},
		Relationships: []relationship{{documentID, "DESCRIBES", main.ID}},
	}
	add := func(path, version, sum string) {
		m := entry(fmt.Sprint("SPDXRef-module-", len(d.Packages)), path, version)
		if sum != "" {
			m.Source = "go.sum: " + sum
		}
		d.Packages = append(d.Packages, m)
		d.Relationships = append(d.Relationships, relationship{main.ID, "DEPENDS_ON", m.ID})
	}
	// Advisories about the standard library name it so.
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Path == prefix || strings.HasPrefix(m.Path, prefix+"/") {
			add(m.Path, version, "")
			continue
		}
		add(m.Path, m.Version, m.Sum)
	}
	return d
}

// entry is the entry of a Go module at a version.
func entry(id, path, version string) component {
	return component{
		ID: id, Name: path, Version: version, Download: "NOASSERTION", Purpose: "LIBRARY",
		References: []external{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	}
}
