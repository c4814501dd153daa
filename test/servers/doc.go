// Package servers starts real servers for tests: Redis and Valkey, PostgreSQL, memcached,
// Kafka and RabbitMQ.
//
// # Basics
//
// [Each] runs a test once for every kind of server, each time with a fresh one:
//
//	func TestStore(t *testing.T) {
//		servers.Each(t, func(t *testing.T, s *servers.Server) {
//			client := connect(t, s.URL())
//			...
//		})
//	}
//
// [Start] starts one server of a given [Kind]; call it several times for several
// servers. [Daemon.Kill], [Daemon.Stop], [Server.Restart], [Daemon.Pause] and
// [Daemon.Resume] make the faults that a client must live through, and
// [Server.Do] sends a command past the client that is being tested.
//
// [StartSentinel] starts a primary with replicas and the Sentinels that watch them,
// and [StartCluster] a cluster; each of their servers can be broken like any other.
//
// [Daemon.SetClock] sets the wall clock of one server, and [SetClock] that of any process, on
// Linux and amd64.
//
// [StartPostgres], [StartMemcached], [StartKafka] and [StartRabbitMQ] start a [Daemon] of those
// that are no Redis, which can be killed, paused and started again as well, and so does
// [StartPgBouncer], which stands before a PostgreSQL. PostgreSQL and PgBouncer refuse to run
// as root, and are then run as the user postgres or nobody.
//
// They are processes and no containers (testcontainers), because that needs no daemon with its
// rights and images, a Redis answers in 20 ms, and a test can stop one and set its clock.
//
// A server listens on a free port of the loopback interface only, keeps its
// files in the test's own directory, saves nothing unless told to, and is killed
// when the test ends.
//
// # Caveats
//
// All programs are required: where one is missing the test fails, and says how
// to install it. A test that quietly did not run would look like one that passed.
//
// A port is free when it is chosen, and kept from other tests from then on, which does
// not keep it free of everybody. Start takes another one if it was taken meanwhile;
// Restart cannot, since clients know the old one, and fails the test if it stays taken.
//
// Sentinels and nodes of a cluster are patient until a test waits for a failover: a
// server that is held up for some seconds, as on a busy machine, is not replaced when
// nobody asked for it.
package servers
