package clients

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTable holds the table against a map.
func TestTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	table, want := New[int](20_000), make(map[string]int)
	beyond := int64(0)
	for range 200_000 {
		name := fmt.Sprintf("client-%d", rng.IntN(30_000))
		if rng.IntN(1000) == 0 {
			name = strings.Repeat(name, 200)[:maxName+rng.IntN(9)] // what is beyond the bound does not count
		}
		v := table.Find(name)
		name = name[:min(len(name), maxName)]
		if _, known := want[name]; !known && len(want) == 20_000 {
			beyond++
			if v != nil {
				t.Fatalf("%.20s is found in a full table", name)
			}
			continue
		}
		want[name]++
		*v++
	}
	if table.Len() != len(want) || table.Beyond() != beyond {
		t.Fatalf("%d clients and %d beyond; want %d and %d", table.Len(), table.Beyond(), len(want), beyond)
	}
	for name, v := range table.All() {
		if want[name] != *v {
			t.Errorf("%.20s has %d, want %d", name, *v, want[name])
		}
	}
}

func TestRobot(t *testing.T) {
	var robots Robots
	for agent, want := range map[string]bool{
		"":         false,
		"curl/8.1": true,
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)":                                                true,
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.77 Safari/537.36":                false,
		"UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/":                                                             true,
		"Mozilla/5.0 (iPhone; CPU iPhone OS 6_0 like Mac OS X) (compatible; YANDEXBOT/3.0; +http://yandex.com/bots)":              true,
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.73.11 (KHTML, like Gecko) Version/7.0.1 Safari/537.73.11": false,
	} {
		for range 2 {
			if robots.Is(agent) != want {
				t.Errorf("Is(%q) is not %v", agent, want)
			}
		}
		if got := Robot(agent); got != want {
			t.Errorf("Robot(%q) is %v", agent, got)
		}
	}
}
