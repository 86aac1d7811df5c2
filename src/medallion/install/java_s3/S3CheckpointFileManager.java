package medallion;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/** Checkpoints on S3: a plan of a batch never replaces another; elsewhere as Spark's own manager. */
public final class S3CheckpointFileManager extends FileSystemBasedCheckpointFileManager {
    private final boolean isS3;

    public S3CheckpointFileManager(Path path, Configuration conf) {
        super(path, conf);
        isS3 = fs().getUri().getScheme().startsWith("s3");
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        if (!isS3) {
            return super.createAtomic(path, overwrite);
        }
        try {
            return S3OutputStream.open(fs(), path, overwrite);
        } catch (IOException error) {
            throw new UncheckedIOException(error); // Scala declares no exceptions
        }
    }
}
