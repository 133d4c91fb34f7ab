import java.util.HashMap;
import java.util.Map;
import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.LongPollingTransport;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.client.api.Request;
import org.eclipse.jetty.util.ajax.JSON;

/**
 * Watches a channel with the CometD Java client and prints one JSON line for everything that happens.
 *
 *   java -cp 'lib/*' CometdWatch.java URL TOKEN REPLAY_ID CHANNEL
 *
 * The client finds its own way back to a server that died; all this program adds is what every application must, to
 * subscribe again after a handshake, from the last replay id it has seen. A line on stdin ends it.
 */
public class CometdWatch {
    private static Object lastReplayId;

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        String token = arguments[1];
        String channel = arguments[3];
        lastReplayId = Long.valueOf(arguments[2]);
        HttpClient http = new HttpClient();
        http.start();
        LongPollingTransport transport = new LongPollingTransport(new HashMap<>(), http) {
            @Override
            protected void customize(Request request) {
                super.customize(request);
                request.header("Authorization", token);
            }
        };
        BayeuxClient client = new BayeuxClient(url, transport);
        client.setOption(BayeuxClient.BACKOFF_INCREMENT_OPTION, 200L);
        client.setOption(BayeuxClient.MAX_BACKOFF_OPTION, 500L);
        client.addExtension(new ClientSession.Extension() {
            @Override
            public boolean sendMeta(ClientSession session, Message.Mutable message) {
                if (Channel.META_SUBSCRIBE.equals(message.getChannel())) {
                    message.getExt(true).put("replay", Map.of(channel, lastReplayId));
                }
                return true;
            }
        });
        ClientSessionChannel.MessageListener listener = (source, message) -> {
            Object event = message.getDataAsMap().get("event");
            lastReplayId = ((Map<?, ?>) event).get("replayId");
            print("event", Map.of("channel", channel, "replayId", lastReplayId, "data", message.getDataAsMap()));
        };
        client.getChannel(Channel.META_HANDSHAKE).addListener((ClientSessionChannel.MessageListener) (source, handshake) -> {
            print("handshake", Map.of("successful", handshake.isSuccessful()));
            if (handshake.isSuccessful()) {
                client.getChannel(channel).subscribe(listener, reply ->
                    print("subscribed", Map.of("channel", channel, "successful", reply.isSuccessful())));
            }
        });
        client.getChannel(Channel.META_CONNECT).addListener((ClientSessionChannel.MessageListener) (source, connect) -> {
            if (!connect.isSuccessful()) {
                print("connect", Map.of("successful", false, "error", String.valueOf(connect.get("error"))));
            }
        });
        client.handshake();
        System.in.read();
        client.disconnect(1000);
        System.exit(0);
    }

    private static synchronized void print(String kind, Map<String, Object> fields) {
        Map<String, Object> line = new HashMap<>(fields);
        line.put("kind", kind);
        System.out.println(new JSON().toJSON(line));
        System.out.flush();
    }
}
