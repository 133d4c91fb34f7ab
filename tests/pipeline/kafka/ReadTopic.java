import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Prints the messages of a topic's only partition, one to a line: key, tab, value.
 *
 *   java -cp 'lib/*' ReadTopic.java HOST:PORT TOPIC
 */
public class ReadTopic {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(arguments[1], 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            StringBuilder lines = new StringBuilder();
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> message : consumer.poll(Duration.ofSeconds(1))) {
                    lines.append(message.key()).append('\t').append(message.value()).append('\n');
                }
            }
            System.out.print(lines);
        }
    }
}
