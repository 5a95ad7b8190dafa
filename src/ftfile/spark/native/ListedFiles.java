package ftfile;

import java.io.File;
import java.io.FileNotFoundException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecutionException;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.mutable.ListBuffer;

/**
 * The files of a version, and their comparison with the storage when a query begins. Spark's own list contains one file
 * of each directory, so that Spark parses and prunes the partitions. This list replaces that file by all files of the
 * directory. Janino compiles the class, like Spark's generated code: without type parameters, and without lambdas.
 */
public final class ListedFiles implements FileIndex {
  static final long UNKNOWN = -1;
  private static final int THREADS = 16;
  private static final long BLOCK_BYTES = 128 << 20; // Spark splits files by its own settings
  private final FileIndex samples;
  private final SparkSession session;
  private final scala.collection.immutable.Map options;
  private final byte[] content;
  private final long size;
  private final boolean compares;
  private final Map directories = new LinkedHashMap(); // Directory, by its path

  /** The files of a directory. Their times are those that the first query saw. */
  static final class Directory {
    String url;
    int start; // of the files in the content
    int end;
    volatile long[] times;
  }

  /**
   * A local file contains, for each directory, its URL, the length of its files, and the files: each a length and an
   * encoded name. A NUL follows each of them. Without `compares`, only the first query compares a directory.
   */
  public ListedFiles(
      FileIndex samples,
      SparkSession session,
      scala.collection.immutable.Map options,
      String file,
      long size,
      boolean compares)
      throws Exception {
    this.samples = samples;
    this.session = session;
    this.options = options;
    this.content = Files.readAllBytes(Paths.get(file));
    this.size = size;
    this.compares = compares;
    int at = 0;
    while (at < content.length) {
      int urlEnd = endOfText(at);
      int lengthEnd = endOfText(urlEnd + 1);
      Directory directory = new Directory();
      directory.url = text(at, urlEnd);
      directory.start = lengthEnd + 1;
      directory.end = directory.start + Integer.parseInt(text(urlEnd + 1, lengthEnd));
      directories.put(new URI(directory.url + "/").getPath(), directory);
      at = directory.end;
    }
  }

  private int endOfText(int at) {
    while (content[at] != 0) at++;
    return at;
  }

  private String text(int start, int end) {
    return new String(content, start, end - start, StandardCharsets.ISO_8859_1);
  }

  /** Spark calls it once for each scan, after it has pruned partitions, and before a task begins. */
  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    // Filters of `_metadata` would be evaluated on the sample. Spark also applies them to the rows.
    Seq partitions = samples.listFiles(partitionFilters, (Seq) (Object) Nil$.MODULE$);
    ListBuffer complete = new ListBuffer();
    try {
      List chosen = new ArrayList(); // a list of directories for each partition
      List tasks = new ArrayList();
      FileSystem storage = null;
      for (Iterator iterator = partitions.iterator(); iterator.hasNext(); ) {
        for (Iterator files = ((PartitionDirectory) iterator.next()).files().iterator(); files.hasNext(); ) {
          Path sample = ((FileStatusWithMetadata) files.next()).getPath();
          // All files are in one storage system. The settings of the session are those of Spark's readers.
          if (storage == null) storage = sample.getFileSystem(session.sessionState().newHadoopConfWithOptions(options));
          tasks.add(task(storage, directoryOf(sample)));
        }
      }
      List results = results(tasks);
      int next = 0;
      for (Iterator iterator = partitions.iterator(); iterator.hasNext(); ) {
        PartitionDirectory partition = (PartitionDirectory) iterator.next();
        List statuses = new ArrayList();
        for (int count = partition.files().size(); count > 0; count--) statuses.addAll((List) results.get(next++));
        complete.addOne(PartitionDirectory.apply(
            partition.values(), (FileStatus[]) statuses.toArray(new FileStatus[statuses.size()])));
      }
    } catch (Exception error) {
      Platform.throwException(error); // Spark's method declares none
    }
    return complete.toList();
  }

  private Directory directoryOf(Path file) {
    String path = file.toUri().getPath();
    return (Directory) directories.get(path.substring(0, path.lastIndexOf('/') + 1));
  }

  private Callable task(final FileSystem storage, final Directory directory) {
    return new Callable() {
      public Object call() throws Exception {
        return statuses(storage, directory);
      }
    };
  }

  private static List results(List tasks) throws Exception {
    List results = new ArrayList();
    if (tasks.size() == 1) {
      results.add(((Callable) tasks.get(0)).call());
      return results;
    }
    ExecutorService threads = Executors.newFixedThreadPool(Math.max(1, Math.min(THREADS, tasks.size())));
    try {
      List futures = threads.invokeAll(tasks);
      for (int index = 0; index < futures.size(); index++) results.add(((Future) futures.get(index)).get());
    } catch (ExecutionException error) {
      Platform.throwException(error.getCause());
    } finally {
      threads.shutdownNow();
    }
    return results;
  }

  /** Return the files of a directory, except for empty files, which Spark does not read. */
  List statuses(FileSystem storage, Directory directory) throws Exception {
    List files = files(directory);
    boolean isLocal = storage instanceof LocalFileSystem;
    // A listing of a disk requests each file, also files that are not read.
    boolean lists = files.size() > 1 && !"file".equals(storage.getUri().getScheme());
    long[] before = directory.times;
    boolean looks = compares || before == null;
    Map listing = looks && lists ? listing(storage, ((FileStatus) files.get(0)).getPath().getParent()) : null;
    long[] times = looks ? new long[files.size()] : before;
    List statuses = new ArrayList(files.size());
    for (int index = 0; index < files.size(); index++) {
      FileStatus file = (FileStatus) files.get(index);
      Path path = file.getPath();
      long earlier = before == null ? UNKNOWN : before[index];
      if (looks && !(isLocal && isUnchanged(file, earlier, times, index))) {
        FileStatus actual = lists ? (FileStatus) listing.get(path.getName()) : status(storage, path);
        compareFile(file, earlier, actual);
        times[index] = actual.getModificationTime();
      }
      statuses.add(new FileStatus(file.getLen(), false, 1, BLOCK_BYTES, times[index], path));
    }
    directory.times = times;
    return statuses;
  }

  /** Set the time of a local file, and return true if length and time are as before. Two calls of the system. */
  static boolean isUnchanged(FileStatus file, long earlier, long[] times, int index) {
    File local = new File(file.getPath().toUri().getPath());
    times[index] = local.lastModified();
    return local.length() == file.getLen() && (earlier == UNKNOWN || earlier == times[index]);
  }

  /** Return the files of a directory that are not empty, without their times. */
  private List files(Directory directory) throws Exception {
    List files = new ArrayList();
    int at = directory.start;
    while (at < directory.end) {
      int lengthEnd = endOfText(at);
      int nameEnd = endOfText(lengthEnd + 1);
      long length = Long.parseLong(text(at, lengthEnd));
      if (length > 0) {
        Path path = new Path(new URI(directory.url + "/" + text(lengthEnd + 1, nameEnd)));
        files.add(new FileStatus(length, false, 1, BLOCK_BYTES, 0, path));
      }
      at = nameEnd + 1;
    }
    return files;
  }

  static FileStatus status(FileSystem storage, Path path) throws Exception {
    try {
      return storage.getFileStatus(path);
    } catch (FileNotFoundException error) {
      return null;
    }
  }

  static Map listing(FileSystem storage, Path directory) throws Exception {
    Map statuses = new HashMap();
    try {
      for (RemoteIterator iterator = storage.listStatusIterator(directory); iterator.hasNext(); ) {
        FileStatus status = (FileStatus) iterator.next();
        statuses.put(status.getPath().getName(), status);
      }
    } catch (FileNotFoundException error) {
      statuses.clear();
    }
    return statuses;
  }

  static void compareFile(FileStatus recorded, long time, FileStatus actual) throws QueryExecutionException {
    if (actual == null) {
      throw refusal(recorded, "is gone: a compaction, an overwrite, a drop or a vacuum has removed it, or another"
          + " program. Call ftfile.spark.load again, which finds where its rows are now. If that query also fails,"
          + " `ftfile verify` lists all missing files");
    }
    if (actual.getLen() != recorded.getLen()) {
      throw refusal(recorded, "had " + recorded.getLen() + " bytes, and has " + actual.getLen()
          + ": another program has replaced it. Restore it from a copy before you call ftfile.spark.load again."
          + " `ftfile verify` lists all such files");
    }
    if (time != UNKNOWN && time != actual.getModificationTime()) {
      throw refusal(recorded, "has the length that it had, and another time: another program has replaced it since an"
          + " earlier query. Call ftfile.spark.load again, which compares lengths with the log. With"
          + " check_files=False, later queries read the existing file");
    }
  }

  private static QueryExecutionException refusal(FileStatus recorded, String fault) {
    return new QueryExecutionException(recorded.getPath() + " " + fault, null);
  }

  public Seq rootPaths() {
    return samples.rootPaths();
  }

  public String[] inputFiles() {
    List urls = new ArrayList();
    for (java.util.Iterator iterator = directories.values().iterator(); iterator.hasNext(); ) {
      Directory directory = (Directory) iterator.next();
      for (int at = directory.start; at < directory.end; ) {
        int start = endOfText(at) + 1;
        at = endOfText(start) + 1;
        urls.add(directory.url + "/" + text(start, at - 1));
      }
    }
    return (String[]) urls.toArray(new String[urls.size()]);
  }

  public void refresh() {
    samples.refresh();
  }

  public long sizeInBytes() {
    return size;
  }

  public StructType partitionSchema() {
    return samples.partitionSchema();
  }

  public Option metadataOpsTimeNs() {
    return samples.metadataOpsTimeNs();
  }

  public String toString() {
    return samples.toString();
  }
}
