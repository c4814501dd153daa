package servers

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// initial is an archive of what initdb has made, once in a process: it takes a second of
// computing, and what it makes for the next server is the same. The archive's file has no name any
// more, so that nobody needs to remove it.
var initial struct {
	sync.Mutex
	archive *os.File
}

// initialise makes the server's files.
func (p *Postgres) initialise() {
	p.t.Helper()
	initial.Lock()
	defer initial.Unlock()
	if initial.archive == nil {
		p.make()
		return
	}
	if _, err := initial.archive.Seek(0, io.SeekStart); err != nil {
		p.t.Fatalf("servers: what initdb made: %v", err)
	}
	// A program is quicker than this process, in which the race detector would look at each byte.
	tar := p.run(Bounded(p.t), "tar", "-x", "-S", "-p", "-f", "-", "-C", p.dir)
	tar.Stdin = initial.archive
	if out, err := tar.CombinedOutput(); err != nil {
		p.t.Fatalf("servers: tar: %v:\n%s", err, out)
	}
}

// make makes the files of the first server, and the archive.
func (p *Postgres) make() {
	p.t.Helper()
	p.do("initdb", "--auth=trust", "--username=headgate", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata="+p.data)
	// These are two thirds of the files, and tests make no databases.
	single := p.run(Bounded(p.t), filepath.Join(p.programs, "postgres"), "--single", "-F", "-D", p.data, "postgres")
	single.Stdin = strings.NewReader("UPDATE pg_database SET datistemplate = false\nDROP DATABASE template0\nDROP DATABASE template1\n")
	if out, err := single.CombinedOutput(); err != nil || bytes.Contains(out, []byte("ERROR")) {
		p.t.Fatalf("servers: postgres --single: %v:\n%s", err, out)
	}
	archive, err := os.CreateTemp("", "headgate-postgres-")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.Remove(archive.Name()); err != nil {
		p.t.Fatal(err)
	}
	tar := p.run(Bounded(p.t), "tar", "-c", "-S", "-f", "-", "-C", p.dir, "data")
	tar.Stdout = archive
	problems := new(bytes.Buffer)
	tar.Stderr = problems
	if err := tar.Run(); err != nil {
		p.t.Fatalf("servers: tar: %v:\n%s", err, problems)
	}
	initial.archive = archive
}
