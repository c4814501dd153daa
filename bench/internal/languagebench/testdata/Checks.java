import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.github.headgate.Client;
import io.lettuce.core.RedisClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.codec.StringCodec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Checks one of two limits for a while: "free", which nobody reaches, for many keys, or "few", a bucket, for one key. It
 * prints how many checks there were, how many were admitted, and the median and the 99th percentile in microseconds.
 */
class Checks {
    private interface Limit {
        boolean admits(String rule, String key);
    }

    public static void main(String[] args) throws Exception {
        String contender = args[0];
        String url = args[1];
        String rule = args[2];
        int threads = Integer.parseInt(args[3]);
        long warm = Long.parseLong(args[4]);
        long lasts = Long.parseLong(args[5]);
        long burst = Long.parseLong(args[6]);
        long perHour = Long.parseLong(args[7]);
        Limit limit = contender.equals("headgate") ? headgate(url) : bucket4j(url, burst, perHour);
        var admitted = new AtomicLong();
        var times = new ArrayList<long[]>();
        var all = new ArrayList<Thread>();
        limit.admits("free", "first"); // This loads most of the classes.
        long began = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            var thread = new Thread(() -> {
                long[] took = new long[1 << 20];
                int n = 0;
                for (long now = System.nanoTime(); now - began < (warm + lasts) * 1_000_000;) {
                    String key = rule.equals("few") ? "one" : "k" + ThreadLocalRandom.current().nextInt(10_000);
                    if (limit.admits(rule, key)) {
                        admitted.incrementAndGet();
                    }
                    long after = System.nanoTime();
                    if (now - began >= warm * 1_000_000) {
                        took[n++] = after - now;
                    }
                    now = after;
                }
                synchronized (times) {
                    times.add(Arrays.copyOf(took, n));
                }
            });
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
        long[] sorted = times.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        System.out.printf("{\"done\": %d, \"admitted\": %d, \"p50\": %d, \"p99\": %d}%n", sorted.length, admitted.get(),
                sorted[sorted.length / 2] / 1000, sorted[sorted.length * 99 / 100] / 1000);
        System.exit(0);
    }

    private static Limit headgate(String url) {
        Client client = Client.builder().url(url).timeout(Duration.ofSeconds(10)).build();
        return (rule, key) -> client.check(rule, key).allowed();
    }

    private static Limit bucket4j(String url, long burst, long perHour) {
        var connection = RedisClient.create(url).connect(RedisCodec.of(StringCodec.UTF8, ByteArrayCodec.INSTANCE));
        var buckets = Bucket4jLettuce.casBasedBuilder(connection)
                .expirationAfterWrite(ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofMinutes(1))).build();
        var free = BucketConfiguration.builder().addLimit(l -> l.capacity(1_000_000_000).refillGreedy(1_000_000_000, Duration.ofHours(1))).build();
        var few = BucketConfiguration.builder().addLimit(l -> l.capacity(burst).refillGreedy(perHour, Duration.ofHours(1))).build();
        return (rule, key) -> buckets.builder().build(rule + ":" + key, () -> rule.equals("few") ? few : free).tryConsume(1);
    }
}
