package medallion;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;

/** Delta's log on S3: a commit never replaces that of another writer, whatever its engine. */
public final class S3LogStore extends HadoopFileSystemLogStore {
    public S3LogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        S3OutputStream out = S3OutputStream.open(path.getFileSystem(conf), path, overwrite);
        try {
            while (actions.hasNext()) {
                out.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
            }
            out.close();
        } catch (FileAlreadyExistsException error) {
            throw new java.nio.file.FileAlreadyExistsException(path.toString()); // what Delta expects
        } finally {
            out.cancel(); // does nothing after close
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }
}
