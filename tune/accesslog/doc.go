// Package accesslog reads the access logs of web servers, proxies and load balancers. It turns many
// formats into one stream of requests, ordered by time.
//
// # Basics
//
//	log, err := accesslog.Open(ctx, []string{"access.log.1.gz", "access.log"}, accesslog.Options{})
//	if err != nil {
//		return err
//	}
//	defer log.Close()
//	for {
//		stretch, err := log.Next()
//		if errors.Is(err, io.EOF) {
//			break
//		}
//		if err != nil {
//			return err
//		}
//		for i := range stretch.Requests {
//			r := &stretch.Requests[i]
//			fmt.Println(r.Time, r.Text(r.IP), r.Text(r.Target))
//		}
//		stretch.Release()
//	}
//
// The format is detected from the first lines unless [Options] names it. Files that are compressed
// with gzip or zstd are recognized by their first bytes.
//
// # How it works
//
// A file is cut into blocks at the ends of lines. Several workers parse blocks, each into a
// [Batch]: the bytes of the block, and for each line a [Record] that says where in these bytes its
// fields are. Nothing is copied or allocated for a line. The requests of all files are merged by
// time, and returned as a [Stretch]. When a stretch is released, its blocks are reused for later
// lines.
//
// # Caveats
//
// A line that cannot be read is counted and does not end the reading. [Log.Stats] has the first few
// of them. Texts of a request are valid until its stretch is released.
package accesslog
