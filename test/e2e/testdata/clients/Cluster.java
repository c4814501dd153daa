// Asks Headgate as programs do whose clients are in cluster mode: Jedis and Lettuce. It prints a
// line for each client, as cluster.mjs does. The port and the token are arguments.
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.commands.ProtocolCommand;

public class Cluster {
  interface Client {
    List<?> call(String command, String key, String... args);
  }

  record Command(String name) implements ProtocolCommand, ProtocolKeyword {
    public byte[] getRaw() {
      return name.getBytes();
    }

    public byte[] getBytes() {
      return name.getBytes();
    }
  }

  static void ask(String name, Client client) {
    var throttled = new ArrayList<String>();
    for (int i = 0; i < 4; i++) {
      throttled.add(client.call("CL.THROTTLE", name, name, "2", "1", "3600").get(0).toString());
    }
    var first = client.call("HG.CHECK", name, "mail", name, "COST", "5").get(1);
    var second = client.call("HG.CHECK", name, "mail", name).get(1);
    System.out.println(name + " " + String.join("", throttled) + " " + first + " " + second);
  }

  public static void main(String[] args) {
    int port = Integer.parseInt(args[0]);
    var config = DefaultJedisClientConfig.builder().password(args[1]).socketTimeoutMillis(60000).resp2().build();
    try (var jedis = RedisClusterClient.builder().nodes(java.util.Set.of(new HostAndPort("127.0.0.1", port))).clientConfig(config).build()) {
      ask("jedis", (command, key, words) -> (List<?>) jedis.sendCommand(key, new Command(command), words));
    }
    var uri = RedisURI.builder().withHost("127.0.0.1").withPort(port).withPassword(args[1].toCharArray()).build();
    var client = io.lettuce.core.cluster.RedisClusterClient.create(uri);
    client.setOptions(ClusterClientOptions.builder().protocolVersion(ProtocolVersion.RESP2).build());
    try (var connection = client.connect()) {
      ask("lettuce", (command, key, words) -> {
        var all = new CommandArgs<>(StringCodec.UTF8);
        for (var word : words) {
          all.add(word);
        }
        return connection.sync().dispatch(new Command(command), new NestedMultiOutput<>(StringCodec.UTF8), all);
      });
    }
    client.shutdown(0, 0, TimeUnit.SECONDS);
  }
}
