package servers

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// initial is what initdb has made, once in a process: it takes a second of computing, and
// what it makes for the next server is the same.
var initial struct {
	sync.Mutex
	files []file
}

// file is a file or directory below a server's data directory.
type file struct {
	name string
	mode fs.FileMode
	// size is larger than the data by the zeros at their end.
	size int64
	data []byte
}

// initialise makes the server's files.
func (p *Postgres) initialise() {
	p.t.Helper()
	initial.Lock()
	defer initial.Unlock()
	if initial.files != nil {
		p.restore(initial.files)
		return
	}
	p.do("initdb", "--auth=trust", "--username=headgate", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata="+p.data)
	files, err := read(p.data)
	if err != nil {
		p.t.Fatalf("servers: what initdb made: %v", err)
	}
	initial.files = files
}

// read returns the files of a directory, with the directory itself.
func read(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := file{name: name, mode: info.Mode(), size: info.Size()}
		if !d.IsDir() {
			if f.data, err = os.ReadFile(path); err != nil {
				return err
			}
			f.data = bytes.Clone(bytes.TrimRight(f.data, "\x00"))
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// restore writes files into the data directory, which is not there yet.
func (p *Postgres) restore(files []file) {
	p.t.Helper()
	for _, f := range files {
		path := filepath.Join(p.data, f.name)
		if err := p.write(path, &f); err != nil {
			p.t.Fatalf("servers: %v", err)
		}
	}
}

func (p *Postgres) write(path string, f *file) error {
	if f.mode.IsDir() {
		if err := os.Mkdir(path, f.mode.Perm()); err != nil {
			return err
		}
	} else {
		if err := os.WriteFile(path, f.data, f.mode.Perm()); err != nil {
			return err
		}
		if err := os.Truncate(path, f.size); err != nil {
			return err
		}
	}
	if p.owner == nil {
		return nil
	}
	return os.Chown(path, int(p.owner.Uid), int(p.owner.Gid))
}
