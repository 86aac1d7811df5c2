package medallion;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/** An object that appears complete on close, or never; unless it may replace one, only if there is none. */
final class S3OutputStream extends CheckpointFileManager.CancellableFSDataOutputStream {
    private static final String IF_ABSENT = "fs.option.create.conditional.overwrite";
    private static final String WRITER = "medallion-writer"; // metadata of the object

    private final FileSystem fs;
    private final Path path;
    private final FSDataOutputStream object;
    private final byte[] writer; // null if the object may replace another
    private boolean hasEnded;

    private S3OutputStream(FileSystem fs, Path path, FSDataOutputStream object, byte[] writer) {
        super(object);
        this.fs = fs;
        this.path = path;
        this.object = object;
        this.writer = writer;
    }

    static S3OutputStream open(FileSystem fs, Path path, boolean replaces) throws IOException {
        String writer = UUID.randomUUID().toString();
        FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path).overwrite(true).recursive();
        if (replaces) {
            builder.opt("fs.s3a.create.performance", true); // saves the check whether it is a directory
        } else {
            builder.must(IF_ABSENT, true).opt("fs.s3a.create.header." + WRITER, writer);
        }
        byte[] written = replaces ? null : writer.getBytes(StandardCharsets.UTF_8);
        return new S3OutputStream(fs, path, (FSDataOutputStream) builder.build(), written);
    }

    @Override
    public void cancel() {
        if (!hasEnded) {
            hasEnded = true;
            object.abort();
        }
    }

    /** Throws FileAlreadyExistsException if another writer was first. */
    @Override
    public void close() throws IOException {
        if (hasEnded) {
            return;
        }
        hasEnded = true;
        try {
            object.close();
        } catch (IOException error) {
            // S3 refuses the repetition of a request that it has carried out, if its answer was lost.
            if (writer == null || !isWrittenByThis(error)) {
                throw error;
            }
        }
    }

    private boolean isWrittenByThis(IOException error) throws IOException {
        byte[] found;
        try {
            found = fs.getXAttr(path, "header." + WRITER);
        } catch (IOException none) {
            if (!(none instanceof FileNotFoundException)) {
                error.addSuppressed(none);
            }
            return false;
        }
        if (Arrays.equals(found, writer)) {
            return true;
        }
        FileAlreadyExistsException lost = new FileAlreadyExistsException(path.toString());
        lost.initCause(error);
        throw lost;
    }
}
