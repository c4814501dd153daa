package redis

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// answerWithin is how long a server has to show that it answers at all.
const answerWithin = 3 * time.Second

// answers returns an error if the server does not answer.
func (p *patient) answers() error {
	ctx, cancel := context.WithTimeout(p.ctx, answerWithin)
	defer cancel()
	var err error
	for range 2 { // the connection may have been closed since, by a server that refused to count
		if _, err = bounded(ctx, func() (struct{}, error) {
			return struct{}{}, answered(p.client.Do(ctx, p.client.B().Ping().Build()).Error())
		}); err == nil {
			return nil
		}
	}
	return err
}

// writable looks whether a server that is to count is one that does.
func (p *patient) writable() {
	if p.info["role"] == "slave" {
		p.add("role", Bad, "it is a replica, and counts nothing").Fix = fmt.Sprintf("name its primary in the URL, %s by what it says, or the Sentinels, which know who it is", net.JoinHostPort(p.info["master_host"], p.info["master_port"]))
	}
}

// replicas are the addresses of those that follow the server, as it says.
func (p *patient) replicas() []string {
	var all []string
	for i := range p.number("connected_slaves") {
		var host, port string
		for _, part := range strings.Split(p.info["slave"+strconv.FormatInt(i, 10)], ",") {
			switch name, value, _ := strings.Cut(part, "="); name {
			case "ip":
				host = value
			case "port":
				port = value
			}
		}
		if host != "" && port != "" {
			all = append(all, net.JoinHostPort(host, port))
		}
	}
	return all
}

// coverage looks whether the cluster serves all slots.
func (p *patient) coverage() {
	text, err := p.client.Do(p.ctx, p.client.B().ClusterInfo().Build()).ToString()
	if err != nil {
		return // not allowed; what is not served fails by itself
	}
	info := parseInfo(text)
	served, _ := strconv.Atoi(info["cluster_slots_ok"])
	switch state := info["cluster_state"]; {
	case served < slotCount:
		p.d.add("", "slots", Bad, fmt.Sprintf("%d of %d slots are served by nobody, says %s; the cluster's state is %s", slotCount-served, slotCount, p.name, state),
			"start the primary or a replica of those slots; CLUSTER NODES says which are missed")
	case state != "ok":
		p.d.add("", "slots", Bad, fmt.Sprintf("the cluster's state is %s, says %s", state, p.name), "CLUSTER NODES and the servers' logs say why")
	default:
		p.d.add("", "slots", Fine, fmt.Sprintf("all %d slots are served", slotCount), "")
	}
}

// peer connects to one server, as to the others, or to a Sentinel, until the context ends.
func (s *Store) peer(ctx context.Context, address string, sentinel bool) (rueidis.Client, error) {
	t := *s.target
	t.topology, t.hosts = single, []string{address}
	set := settings{timeout: s.deadlines.timeout}
	if sentinel {
		t.user, t.password, t.passwordFile, t.database = t.sentinelUser, "", t.sentinelPasswordFile, 0
	}
	o, err := t.options(&set)
	if err != nil {
		return nil, err
	}
	o.Dialer.Timeout = min(o.Dialer.Timeout, answerWithin)
	o.ConnWriteTimeout = answerWithin // which bounds the greeting, too
	return bounded(ctx, func() (rueidis.Client, error) {
		client, err := rueidis.NewClient(o)
		if err == nil {
			context.AfterFunc(ctx, client.Close) // nobody may be waiting for it any more
		}
		return client, err
	})
}

// diagnoseReplicas examines the servers that would take over. It returns those that
// answered.
func (s *Store) diagnoseReplicas(ctx context.Context, d *Diagnosis, addresses []string) []*patient {
	if s.target == nil {
		return nil // whose client it is knows how to reach them
	}
	var examined []*patient
	slices.Sort(addresses)
	for _, address := range addresses {
		client, err := s.peer(ctx, address, false)
		if err == nil {
			n := &patient{ctx: ctx, client: client, name: address, d: d, prefix: s.prefix}
			if err = n.examine(); err == nil {
				examined = append(examined, n)
			}
			client.Close()
		}
		if err != nil {
			d.add(address, "replicas", Doubtful, fmt.Sprintf("this replica cannot be looked at from here: %v", err), "when it takes over, servers must reach it at this address, with the same user and password")
		}
	}
	return examined
}

// diagnoseSentinels asks the Sentinels of the URL whether they could replace the
// primary.
func (s *Store) diagnoseSentinels(ctx context.Context, d *Diagnosis) {
	if s.target == nil || s.target.topology != sentinels {
		return
	}
	for _, address := range s.target.hosts {
		client, err := s.peer(ctx, address, true)
		if err != nil {
			d.add(address, "sentinel", Doubtful, fmt.Sprintf("it does not answer: %v", err), "start it, or take it out of the URL")
			continue
		}
		text, err := client.Do(ctx, client.B().Arbitrary("SENTINEL", "CKQUORUM", s.target.master).Build()).ToString()
		others, err2 := client.Do(ctx, client.B().Arbitrary("SENTINEL", "SENTINELS", s.target.master).Build()).ToArray()
		client.Close()
		switch {
		case replies(err, "NOPERM"):
			d.add(address, "sentinel", Doubtful, "it may not be asked whether the Sentinels can replace the primary: "+err.Error(), "allow the doctor's user +sentinel|ckquorum")
		case err != nil:
			d.add(address, "sentinel", Bad, "it would not replace the primary: "+err.Error(), "start the Sentinels that are missing")
		case err2 == nil && len(others) < 2:
			d.add(address, "sentinel", Doubtful, fmt.Sprintf("it knows %d other Sentinels: when one is away, nobody replaces the primary", len(others)), "run three, each on a machine of its own")
		default:
			d.add(address, "sentinel", Fine, strings.TrimPrefix(text, "OK "), "")
		}
	}
}
