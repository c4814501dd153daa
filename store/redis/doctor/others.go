package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// answers returns an error if the server does not answer.
func (p *patient) answers() error {
	ctx, cancel := context.WithTimeout(p.ctx, target.AnswerWithin)
	defer cancel()
	var err error
	// The first try may find a connection that the server has closed meanwhile.
	for range 2 {
		if _, err = guard.Bounded(ctx, func() (struct{}, error) {
			return struct{}{}, refusal.Answered(p.client.Do(ctx, p.client.B().Ping().Build()).Error())
		}); err == nil {
			return nil
		}
	}
	return err
}

// writable adds a finding if the server that decisions go to is a replica.
func (p *patient) writable() {
	if p.info["role"] == "slave" {
		p.add("role", Bad, "it is a replica, which refuses writes, so that nothing is counted").Fix = fmt.Sprintf("name its primary in the URL (the replica says it is %s), or name the Sentinels, which know the primary", net.JoinHostPort(p.info["master_host"], p.info["master_port"]))
	}
}

// replicas returns the addresses of the server's replicas, as INFO shows them.
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

// slots is the number of slots of a cluster.
const slots = 1 << 14

// coverage adds a finding that says whether the cluster serves all slots.
func (p *patient) coverage() {
	text, err := p.client.Do(p.ctx, p.client.B().ClusterInfo().Build()).ToString()
	if err != nil {
		return // not permitted; decisions about keys in slots that nobody serves fail in any case
	}
	info := parseInfo(text)
	served, _ := strconv.Atoi(info["cluster_slots_ok"])
	switch state := info["cluster_state"]; {
	case served < slots:
		p.d.add("", "slots", Bad, fmt.Sprintf("%d of %d slots are served by nobody, says %s; the cluster's state is %s", slots-served, slots, p.name, state),
			"start the primary or a replica of those slots; CLUSTER NODES says which are missed")
	case state != "ok":
		p.d.add("", "slots", Bad, fmt.Sprintf("the cluster's state is %s, says %s", state, p.name), "CLUSTER NODES and the servers' logs say why")
	default:
		p.d.add("", "slots", Fine, fmt.Sprintf("all %d slots are served", slots), "")
	}
}

// failed adds a finding for each node that the cluster itself has given up, unless it is among those
// that were asked: the client forgets such a node once it reads the cluster's shards anew.
func (p *patient) failed(asked map[string]rueidis.Client) {
	text, err := p.client.Do(p.ctx, p.client.B().ClusterNodes().Build()).ToString()
	if err != nil {
		return // not permitted
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		name, _, _ := strings.Cut(fields[1], "@")
		if flags := strings.Split(fields[2], ","); asked[name] == nil && slices.Contains(flags, "fail") && !slices.Contains(flags, "noaddr") {
			p.d.add(name, "answers", Bad, "the other nodes have given it up, says "+p.name, startIt)
		}
	}
}

// diagnoseReplicas examines the replicas, because each may become a primary. It returns those
// that answered.
func (s *Subject) diagnoseReplicas(ctx context.Context, d *Diagnosis, addresses []string) []*patient {
	if s.Target == nil {
		return nil // the client is the caller's own: how to reach other servers is not known
	}
	var examined []*patient
	slices.Sort(addresses)
	for _, address := range addresses {
		client, err := s.Target.Peer(ctx, address, false)
		if err == nil {
			n := &patient{ctx: ctx, client: client, name: address, d: d, prefix: s.Prefix}
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

// diagnoseSentinels asks each Sentinel of the URL whether the Sentinels could replace the
// primary now.
func (s *Subject) diagnoseSentinels(ctx context.Context, d *Diagnosis) {
	if s.Target == nil || s.Target.Topology != target.Sentinels {
		return
	}
	for _, address := range s.Target.Hosts {
		client, err := s.Target.Peer(ctx, address, true)
		if err != nil {
			d.add(address, "sentinel", Doubtful, fmt.Sprintf("it does not answer: %v", err), "start it, or take it out of the URL")
			continue
		}
		text, err := client.Do(ctx, client.B().Arbitrary("SENTINEL", "CKQUORUM", s.Target.Master).Build()).ToString()
		others, err2 := client.Do(ctx, client.B().Arbitrary("SENTINEL", "SENTINELS", s.Target.Master).Build()).ToArray()
		client.Close()
		switch {
		case refusal.Is(err, "NOPERM"):
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

// diagnoseBus adds a finding that says whether instances of the store can send messages to each
// other.
func (s *Subject) diagnoseBus(ctx context.Context, d *Diagnosis) {
	ctx, cancel := context.WithTimeout(ctx, max(time.Second, s.Timeout))
	defer cancel()
	heard := make(chan struct{}, 1)
	err := s.Store.Subscribe(ctx, func() {
		select {
		case heard <- struct{}{}:
			cancel()
		default:
		}
	}, func([]byte) {})
	select {
	case <-heard:
		// The subscription is in place, and the context has ended because of that. Publish needs
		// another one. Receivers ignore an empty message.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Second, s.Timeout))
		defer cancel()
		err = s.Store.Publish(within, nil)
	default:
	}
	if err == nil {
		d.add("", "messages", Fine, "servers can tell each other what was refunded and reset", "")
		return
	}
	fix := "see which server does not answer"
	if refusal.Is(err, "NOPERM") {
		fix = "allow the user +publish, +subscribe and the channels of its prefix; docs/redis.md has the list"
	}
	d.add("", "messages", Doubtful, fmt.Sprintf("servers cannot tell each other what was refunded and reset: %v; of keys whose denials are remembered they find out some seconds later", err), fix)
}
