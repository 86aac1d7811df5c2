package medallion;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;
import org.apache.hadoop.fs.s3a.S3AFileStatus;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import software.amazon.awssdk.core.ResponseInputStream;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.GetObjectResponse;
import software.amazon.awssdk.services.s3.model.HeadObjectResponse;
import software.amazon.awssdk.services.s3.model.NoSuchKeyException;

/**
 * Hadoop's file system on S3, with fewer requests for tables and checkpoints.
 *
 * Their names tell objects from directories, so that nobody has to ask. A small object is read by one
 * request, without a question for its size before. Files of tables have unique names, and never change.
 */
public final class S3FileSystem extends S3AFileSystem {
    private static final Pattern OBJECT = Pattern.compile(
            ".*/_delta_log/(.+\\.(json|crc|parquet)|_last_checkpoint)|.*/_checkpoints/.+/"
                    + "((offsets|commits)/\\d+|metadata|_metadata/schema|.+\\.(zip|sst|changelog|delta|snapshot))");
    private static final Pattern DIRECTORY = Pattern.compile(
            ".*/_checkpoints/.+/(offsets|commits|state|state/\\d+/\\d+|_metadata)");
    private static final Pattern DATA = Pattern.compile(
            ".*/(_intake|bronze|silver|quarantine|gold)/.+/part-\\d+-[0-9a-f-]{36}[^/]*\\.parquet");
    private static final int SMALL = 1 << 20, MOST_KNOWN = 10_000;

    private final Map<Path, FileStatus> known = Collections.synchronizedMap(new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Path, FileStatus> eldest) {
            return size() > MOST_KNOWN;
        }
    });
    private final ThreadLocal<Answer> last = new ThreadLocal<>();

    /** What exists has found out: usually it is opened or listed next, by the same thread. */
    private record Answer(Path path, byte[] content, FileStatus[] listed, long at) {}

    @Override
    public boolean exists(Path path) throws IOException {
        try {
            if (path.getName().equals("_delta_log")) {
                return listStatusIterator(path).hasNext(); // it may have many pages
            }
            if (is(DIRECTORY, path)) {
                last.set(new Answer(path, null, super.listStatus(path), System.nanoTime()));
                return true;
            }
            if (is(OBJECT, path)) {
                byte[] content = read(path);
                last.set(new Answer(path, content, null, System.nanoTime()));
                return content != null || super.exists(path);
            }
            return is(DATA, path) ? getFileStatus(path) != null : super.exists(path);
        } catch (FileNotFoundException none) {
            return false;
        }
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        boolean isData = is(DATA, path);
        FileStatus status = isData ? known.get(path) : null;
        if (status == null && (isData || is(OBJECT, path))) {
            HeadObjectResponse head = getS3AInternals().getObjectMetadata(path);
            long modified = head.lastModified().toEpochMilli();
            status = new S3AFileStatus(head.contentLength(), modified, makeQualified(path),
                    getDefaultBlockSize(), getUsername(), head.eTag().replace("\"", ""), head.versionId());
            if (isData) {
                known.put(path, status);
            }
        }
        return status == null ? super.getFileStatus(path) : status;
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        Answer answer = take(path);
        if (answer != null && answer.listed != null) {
            return answer.listed;
        }
        return is(DATA, path) ? new FileStatus[] {getFileStatus(path)} : super.listStatus(path);
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        Answer answer = take(path);
        byte[] bytes = answer == null ? null : answer.content;
        if (bytes == null && is(OBJECT, path)) {
            bytes = read(path);
        }
        return bytes == null ? super.open(path, bufferSize) : new FSDataInputStream(new Bytes(bytes));
    }

    @Override
    public void copyToLocalFile(boolean deletes, Path path, Path local, boolean raw) throws IOException {
        if (deletes || !is(OBJECT, path)) {
            super.copyToLocalFile(deletes, path, local, raw);
            return;
        }
        try (InputStream in = open(path)) {
            Files.copy(in, java.nio.file.Path.of(local.toUri().getPath()), StandardCopyOption.REPLACE_EXISTING);
        }
    }

    @Override
    public FSDataOutputStreamBuilder<?, ?> createFile(Path path) {
        last.remove();
        return super.createFile(path);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        forget(path);
        return super.delete(path, recursive);
    }

    @Override
    public boolean rename(Path path, Path target) throws IOException {
        forget(path);
        return super.rename(path, target);
    }

    private void forget(Path path) {
        last.remove();
        known.keySet().removeIf(each -> each.toString().startsWith(path.toString()));
    }

    private Answer take(Path path) {
        Answer answer = last.get();
        last.remove();
        boolean isNew = answer != null && System.nanoTime() - answer.at < 1_000_000_000;
        return isNew && answer.path.equals(path) ? answer : null;
    }

    private static boolean is(Pattern pattern, Path path) {
        return pattern.matcher(path.toString()).matches();
    }

    /** Returns the content of a small object; null if it is large, or Hadoop has to handle an error. */
    private byte[] read(Path path) throws IOException {
        var request = getRequestFactory().newGetObjectRequestBuilder(pathToKey(path)).build();
        S3Client client = getS3AInternals().getAmazonS3Client("to read a small object");
        try (ResponseInputStream<GetObjectResponse> answer = client.getObject(request)) {
            Long size = answer.response().contentLength();
            if (size != null && size <= SMALL) {
                return answer.readAllBytes();
            }
            answer.abort();
        } catch (NoSuchKeyException none) {
            throw new FileNotFoundException(path.toString());
        } catch (SdkException | IOException error) {
            LOG.debug("{} is read again", path, error);
        }
        return null;
    }

    private static final class Bytes extends ByteArrayInputStream implements Seekable, PositionedReadable {
        Bytes(byte[] bytes) {
            super(bytes);
        }

        @Override
        public long getPos() {
            return pos;
        }

        @Override
        public void seek(long position) throws EOFException {
            if (position < 0 || position > count) {
                throw new EOFException("position " + position);
            }
            pos = (int) position;
        }

        @Override
        public boolean seekToNewSource(long position) {
            return false;
        }

        @Override
        public int read(long position, byte[] target, int offset, int length) {
            return new ByteArrayInputStream(buf, (int) position, count).read(target, offset, length);
        }

        @Override
        public void readFully(long position, byte[] target, int offset, int length) throws EOFException {
            if (length > 0 && read(position, target, offset, length) < length) {
                throw new EOFException("position " + position);
            }
        }

        @Override
        public void readFully(long position, byte[] target) throws EOFException {
            readFully(position, target, 0, target.length);
        }
    }
}
