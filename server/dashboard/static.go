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

// files are the pages. Those in static/vendor are other people's; see the README there.
//
//go:embed static
var files embed.FS

// asset is a file as it is served.
type asset struct {
	kind         string
	plain, small []byte // as it is, nil if it is kept compressed only, and compressed
	tag          string
}

// assets are made once: they are part of the program.
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
		panic(err) // The files are part of the program.
	}
	return all
})

// zip compresses a text.
func zip(text []byte) []byte {
	var small bytes.Buffer
	to, _ := gzip.NewWriterLevel(&small, gzip.BestCompression) // The level is a right one.
	_, _ = to.Write(text)                                      // A buffer takes everything.
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

// pages are the paths that people see. All of them are one file, whose script shows what
// the path says.
var pages = map[string]bool{
	"/": true, "/rule": true, "/clients": true, "/key": true, "/denials": true, "/store": true, "/policy": true, "/flow": true, "/lab": true, "/audit": true,
}

// serveStatic answers a request for a page or for what it is made of.
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
	to.Set("Cache-Control", "no-cache") // Asked for each time, and answered with 304.
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
			panic(err) // It is a part of the program.
		}
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // There is nobody to tell.
	}
}
