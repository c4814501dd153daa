package redis_test
import ("testing";"context";"fmt";"os";"github.com/headgate/headgate";"github.com/headgate/headgate/store/storetest";"github.com/headgate/headgate/test/servers";"github.com/redis/rueidis")
type tracer struct{ headgate.Store; f *os.File; clock func() int64 }
func (s tracer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	n := len(dst)
	out, err := s.Store.Take(ctx, op, checks, dst)
	fmt.Fprintf(s.f, "%v at %d err %v\n", op, s.clock(), err)
	for i := range checks { fmt.Fprintf(s.f, "   check %v key %q cost %d at %d shadow %v\n", checks[i].Rule, checks[i].Key, checks[i].Units(), checks[i].At, checks[i].Shadow) }
	for _, d := range out[n:] { fmt.Fprintf(s.f, "      %d %v %v: %v rem %d retry %v reset %v\n", d.Check, d.Rule.Name(), d.Limit, d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter) }
	return out, err
}
func TestDebug(t *testing.T) {
	c := servers.StartCluster(t, servers.Redis)
	client := connect(t, rueidis.ClientOption{InitAddress: []string{c.Nodes[0].Addr()}})
	f, _ := os.Create("/tmp/w4/trace.txt")
	mk := func(t testing.TB, clock func() int64) headgate.Store {
		f.Truncate(0); f.Seek(0,0)
		return tracer{open(t, client, clock), f, clock} }
	storetest.Histories(t, mk, 77, max(1, steps(t)/500/20), 500)
}
