package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

// files has the pages. Those in static/vendor are third-party files; see the README there.
//
//go:embed static
var files embed.FS

// asset is a file in the forms in which it is served.
type asset struct {
	kind string
	// plain is the content, or nil if the file is embedded compressed only. small is the content
	// compressed by gzip.
	plain, small []byte
	tag          string
}

// assets returns the files by their paths. They are prepared once.
var assets = sync.OnceValue(func() map[string]*asset {
	all := make(map[string]*asset)
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		plain, small := text, text
		if short, zipped := strings.CutSuffix(name, ".gz"); zipped {
			name, plain = short, nil
		} else {
			small = zip(text)
		}
		sum := sha256.Sum256(text)
		kind := mime.TypeByExtension(path.Ext(name))
		switch path.Ext(name) {
		case ".wasm":
			kind = "application/wasm"
		case ".js":
			kind = "text/javascript; charset=utf-8"
		case ".css":
			kind = "text/css; charset=utf-8"
		case ".svg":
			kind = "image/svg+xml"
		case ".txt", ".md":
			kind = "text/plain; charset=utf-8"
		case ".html":
			kind = "text/html; charset=utf-8"
		}
		all[strings.TrimPrefix(name, "static")] = &asset{kind, plain, small, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // The embedded files are complete.
	}
	return all
})

// zip compresses a text by gzip.
func zip(text []byte) []byte {
	var small bytes.Buffer
	to, _ := gzip.NewWriterLevel(&small, gzip.BestCompression) // The level is valid.
	_, _ = to.Write(text)                                      // Writing to a buffer cannot fail.
	_ = to.Close()
	return small.Bytes()
}

func unzip(small []byte) ([]byte, error) {
	from, err := gzip.NewReader(bytes.NewReader(small))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(from)
}

// pages are the paths of the pages. They all serve one file, whose script shows the page for the
// path.
var pages = map[string]bool{
	"/": true, "/rule": true, "/clients": true, "/key": true, "/denials": true, "/store": true, "/policy": true, "/flow": true, "/lab": true, "/audit": true,
}

// serveStatic serves a page, or a file that the pages use.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "this path takes GET and HEAD")
		return
	}
	name := r.URL.Path
	if pages[name] {
		name = "/index.html"
	}
	a := assets()[name]
	if a == nil {
		refuse(w, http.StatusNotFound, "there is no such page")
		return
	}
	to := w.Header()
	to.Set("Content-Type", a.kind)
	to.Set("Cache-Control", "no-cache") // Browsers ask each time, and get 304 if nothing has changed.
	to.Set("Etag", a.tag)
	to.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := a.plain
	switch {
	case strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		to.Set("Content-Encoding", "gzip")
		text = a.small
	case text == nil:
		var err error
		if text, err = unzip(a.small); err != nil {
			panic(err) // The embedded file is valid.
		}
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // An error has no consequence: the client may be gone.
	}
}
