package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a running Redis or Valkey.
type Redis struct {
	*Process
	// Version is its name and version, such as "redis-server 7.0.15".
	Version string

	admin *redis.Client // for INFO and the like, apart from the traffic that is measured
}

// StartRedis runs the server binary without persistence, unless further arguments say otherwise.
func StartRedis(ctx context.Context, binary string, args ...string) (_ *Redis, err error) {
	s := new(Redis)
	command := append([]string{binary, "--bind", "127.0.0.1", "--port", "PORT", "--save", "", "--appendonly", "no", "--daemonize", "no"}, args...)
	s.Process, err = launch(ctx, command, "", nil, func(ctx context.Context, addr string) error {
		client := redis.NewClient(&redis.Options{Addr: addr})
		if err := client.Ping(ctx).Err(); err != nil {
			return errors.Join(err, client.Close())
		}
		s.admin = client
		return nil
	})
	if err != nil {
		return nil, err
	}
	info, err := s.admin.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	version := info["Server"]["redis_version"]
	if v, ok := info["Server"]["valkey_version"]; ok {
		version = v
	}
	s.Version = binary + " " + version
	return s, nil
}

// URL is what the store is opened with.
func (s *Redis) URL() string { return "redis://" + s.Addr }

// Stop ends the server. If it did not end well, the error holds its log.
func (s *Redis) Stop() error {
	return errors.Join(s.admin.Close(), s.Process.Stop())
}

// Usage is what the server has spent since it started.
type Usage struct {
	// CPU is the time of the thread that runs commands, in user and system mode.
	CPU time.Duration
	// Scripts is the time inside EVAL and EVALSHA, commands called by the script
	// included, and Calls is how often they were called.
	Scripts time.Duration
	Calls   int64
}

// Sub returns what was spent since the earlier usage was read.
func (u Usage) Sub(earlier Usage) Usage {
	return Usage{CPU: u.CPU - earlier.CPU, Scripts: u.Scripts - earlier.Scripts, Calls: u.Calls - earlier.Calls}
}

// Usage reads the server's counters.
func (s *Redis) Usage(ctx context.Context) (Usage, error) {
	info, err := s.admin.InfoMap(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return Usage{}, fmt.Errorf("servers: INFO: %w", err)
	}
	return parseUsage(info["CPU"], info["Commandstats"])
}

func parseUsage(cpu, stats map[string]string) (Usage, error) {
	var u Usage
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(cpu[field], 64)
		if err != nil {
			return Usage{}, fmt.Errorf("servers: INFO: %s is %q: %w", field, cpu[field], err)
		}
		u.CPU += time.Duration(seconds * float64(time.Second))
	}
	for _, field := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		text, ok := stats[field]
		if !ok {
			continue // not called yet
		}
		calls, err1 := statistic(text, "calls")
		micros, err2 := statistic(text, "usec")
		if err := errors.Join(err1, err2); err != nil {
			return Usage{}, fmt.Errorf("servers: INFO: %s is %q: %w", field, text, err)
		}
		u.Calls += calls
		u.Scripts += time.Duration(micros) * time.Microsecond
	}
	return u, nil
}

// statistic reads one number out of "calls=3,usec=12,usec_per_call=4.00".
func statistic(stats, name string) (int64, error) {
	for part := range strings.SplitSeq(stats, ",") {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("it has no %q", name)
}

// Memory is the server's memory in use, in bytes.
func (s *Redis) Memory(ctx context.Context) (int64, error) {
	info, err := s.admin.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("servers: INFO: %w", err)
	}
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("servers: INFO: used_memory is %q: %w", info["Memory"]["used_memory"], err)
	}
	return used, nil
}

// Flush empties the server and waits until the memory is free.
func (s *Redis) Flush(ctx context.Context) error {
	if err := s.admin.Do(ctx, "FLUSHALL", "SYNC").Err(); err != nil {
		return fmt.Errorf("servers: FLUSHALL: %w", err)
	}
	return nil
}

// Keys returns up to limit of the server's keys that begin with prefix.
func (s *Redis) Keys(ctx context.Context, limit int, prefix string) ([]string, error) {
	var keys []string
	scan := s.admin.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for len(keys) < limit && scan.Next(ctx) {
		keys = append(keys, scan.Val())
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("servers: SCAN: %w", err)
	}
	return keys, nil
}

// KeyMemory is the mean of MEMORY USAGE over up to limit keys that begin with prefix, with every
// element counted.
func (s *Redis) KeyMemory(ctx context.Context, limit int, prefix string) (float64, error) {
	keys, err := s.Keys(ctx, limit, prefix)
	if err != nil {
		return 0, err
	}
	if len(keys) == 0 {
		return 0, errors.New("servers: there are no keys to weigh")
	}
	sum := int64(0)
	for _, key := range keys {
		n, err := s.admin.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			return 0, fmt.Errorf("servers: MEMORY USAGE %s: %w", key, err)
		}
		sum += n
	}
	return float64(sum) / float64(len(keys)), nil
}
