import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Properties;
import java.util.concurrent.Executors;

/**
 * Append the value of each message of Debezium's engine to OUT/TOPIC.json, until the file STOP exists.
 *
 * <p>Usage: java -cp 'lib/*' Capture.java PROPERTIES OUT STOP. The line of a tombstone, which has no value, is `null`.
 */
public class Capture {
    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        try (var reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        var out = Path.of(arguments[1]);
        var engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    if (error != null) {
                        error.printStackTrace();
                    }
                })
                .notifying((ChangeEvent<String, String> event) -> append(out, event))
                .build();
        var executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (!Files.exists(Path.of(arguments[2]))) {
            Thread.sleep(200);
        }
        engine.close();
        executor.shutdown();
    }

    private static void append(Path out, ChangeEvent<String, String> event) {
        try {
            Files.writeString(
                    out.resolve(event.destination() + ".json"),
                    event.value() + "\n",
                    StandardOpenOption.CREATE,
                    StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
