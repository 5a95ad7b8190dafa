package ftfile;

import java.io.FileNotFoundException;
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
import scala.collection.immutable.Seq;

/**
 * Spark's list of files, which compares those that a query is about to read with what the store says of them. Janino
 * compiles it, as Spark's own generated code: without type parameters, and without lambdas.
 */
public final class ComparedFiles implements FileIndex {
  private static final int THREADS = 16;
  private final FileIndex listed;
  private final SparkSession session;
  private final scala.collection.immutable.Map options;
  private final long timeUnit;

  /** Times are compared in units of milliseconds, or not at all by 0. */
  public ComparedFiles(
      FileIndex listed, SparkSession session, scala.collection.immutable.Map options, long timeUnit) {
    this.listed = listed;
    this.session = session;
    this.options = options;
    this.timeUnit = timeUnit;
  }

  /** Spark calls it once for each scan, after it has left partitions out, and before a task begins. */
  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    Seq partitions = listed.listFiles(partitionFilters, dataFilters);
    try {
      compare(partitions);
    } catch (Exception error) {
      Platform.throwException(error); // Spark's method declares none
    }
    return partitions;
  }

  private void compare(Seq partitions) throws Exception {
    Map directories = new LinkedHashMap();
    for (Iterator each = partitions.iterator(); each.hasNext(); ) {
      for (Iterator files = ((PartitionDirectory) each.next()).files().iterator(); files.hasNext(); ) {
        FileStatus known = ((FileStatusWithMetadata) files.next()).fileStatus();
        Path directory = known.getPath().getParent();
        List inside = (List) directories.get(directory);
        if (inside == null) {
          inside = new ArrayList();
          directories.put(directory, inside);
        }
        inside.add(known);
      }
    }
    if (directories.isEmpty()) return;
    // All are in one store; what the session says of it now, also says it to Spark's readers.
    FileSystem store = ((Path) directories.keySet().iterator().next())
        .getFileSystem(session.sessionState().newHadoopConfWithOptions(options));
    List tasks = new ArrayList();
    for (java.util.Iterator each = directories.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry entry = (Map.Entry) each.next();
      tasks.add(task(store, (Path) entry.getKey(), (List) entry.getValue()));
    }
    if (tasks.size() > 1) inThreads(tasks);
    else ((Callable) tasks.get(0)).call();
  }

  private Callable task(final FileSystem store, final Path directory, final List files) {
    return new Callable() {
      public Object call() throws Exception {
        // A listing of a disk asks for each file, also for those that are not read.
        boolean oneByOne = files.size() == 1 || "file".equals(directory.toUri().getScheme());
        Map found = oneByOne ? null : listing(store, directory);
        for (int index = 0; index < files.size(); index++) {
          FileStatus known = (FileStatus) files.get(index);
          Path path = known.getPath();
          compareFile(known, oneByOne ? status(store, path) : (FileStatus) found.get(path.getName()));
        }
        return null;
      }
    };
  }

  private static void inThreads(List tasks) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(Math.min(THREADS, tasks.size()));
    try {
      List results = threads.invokeAll(tasks);
      for (int index = 0; index < results.size(); index++) ((Future) results.get(index)).get();
    } catch (ExecutionException error) {
      Platform.throwException(error.getCause());
    } finally {
      threads.shutdownNow();
    }
  }

  static FileStatus status(FileSystem store, Path path) throws Exception {
    try {
      return store.getFileStatus(path);
    } catch (FileNotFoundException error) {
      return null;
    }
  }

  static Map listing(FileSystem store, Path directory) throws Exception {
    Map found = new HashMap();
    try {
      for (RemoteIterator each = store.listStatusIterator(directory); each.hasNext(); ) {
        FileStatus status = (FileStatus) each.next();
        found.put(status.getPath().getName(), status);
      }
    } catch (FileNotFoundException error) {
      found.clear();
    }
    return found;
  }

  void compareFile(FileStatus known, FileStatus found) throws QueryExecutionException {
    String fault;
    if (found == null) {
      throw refusal(known, "is gone: a compaction, an overwrite, a drop or a vacuum has removed it",
          "finds where its rows are now");
    }
    if (found.getLen() != known.getLen()) {
      fault = "had " + known.getLen() + " bytes, and has " + found.getLen();
    } else if (timeUnit > 0
        && Math.floorDiv(found.getModificationTime(), timeUnit)
            != Math.floorDiv(known.getModificationTime(), timeUnit)) {
      fault = "has the length that it had, and another time";
    } else {
      return;
    }
    throw refusal(known, fault + ": another program has replaced it",
        "compares lengths with the log, or give it check_files=False, which reads what is there");
  }

  private static QueryExecutionException refusal(FileStatus known, String fault, String remedy) {
    return new QueryExecutionException(
        known.getPath() + " " + fault + " since ftfile.spark.load. Call that again, which " + remedy, null);
  }

  public Seq rootPaths() {
    return listed.rootPaths();
  }

  public String[] inputFiles() {
    return listed.inputFiles();
  }

  public void refresh() {
    listed.refresh();
  }

  public long sizeInBytes() {
    return listed.sizeInBytes();
  }

  public StructType partitionSchema() {
    return listed.partitionSchema();
  }

  public Option metadataOpsTimeNs() {
    return listed.metadataOpsTimeNs();
  }

  public String toString() {
    return listed.toString();
  }
}
