// Command release shows what strangers get of the repository's modules, and which tags publish
// them.
//
//	release check        # each module builds and is tidy without its siblings' directories
//	release tidy         # only that: each go.mod and go.sum is tidy
//	release tidy -write  # makes them so
//	release proxy DIR    # a module proxy of the working tree, to try with GOPROXY=file://DIR
//	release tags         # the git commands that publish a version
//	release packages     # programs, archives, packages, checksums and SBOMs; make packages calls it
//
// It packs each module that others import as the module proxies do, into a directory that the go
// command reads as a proxy. Then it takes each module out of its zip and looks at it without the
// workspace, against that directory. It pushes nothing, and only "tidy -write" changes anything in
// the repository. All modules have one version, which is that of the root module in go.work.
//
// A module's go.sum holds no sums of its sibling modules: each sum would depend on the sibling's
// contents, so that no commit could ever hold them all. The go command does not need them within
// the workspace, and whoever imports the modules has the sums in a go.sum of his own.
package main
