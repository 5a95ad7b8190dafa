import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, which starts no process. Without its native library, Hadoop starts a `chmod` for each
 * file and directory that it makes, and two `readlink` for each rename of a checkpoint.
 */
@SuppressWarnings("deprecation")
public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  /** All but what follows is Hadoop's own. */
  private static class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      try {
        Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
      } catch (InvalidPathException error) { // a name that this locale has no bytes for
        super.setPermission(path, permission);
      }
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      try {
        if (!Files.isSymbolicLink(pathToFile(path).toPath())) return getFileStatus(path);
      } catch (InvalidPathException error) {
        // As above.
      }
      return super.getFileLinkStatus(path);
    }
  }

  /** The same for checkpoints, which Spark writes by Hadoop's other interface: as org.apache.hadoop.fs.local.LocalFs. */
  public static class Checkpoints extends ChecksumFs {
    public Checkpoints(URI uri, Configuration configuration) throws IOException, URISyntaxException {
      super(new RawCheckpoints(configuration));
    }
  }

  /** As org.apache.hadoop.fs.local.RawLocalFs. */
  private static class RawCheckpoints extends DelegateToFileSystem {
    RawCheckpoints(Configuration configuration) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new Raw(), configuration, FsConstants.LOCAL_FS_URI.getScheme(), false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public FsServerDefaults getServerDefaults(Path path) throws IOException {
      return LocalConfigKeys.getServerDefaults();
    }

    @Override
    public FsServerDefaults getServerDefaults() throws IOException {
      return LocalConfigKeys.getServerDefaults();
    }

    @Override
    public boolean isValidName(String path) {
      return true;
    }
  }
}
