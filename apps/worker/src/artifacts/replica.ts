import type { FileBeneath } from "@heddle/base/beneath";

/** The folder of copies of checkpoints, `JOB/COPY` as those of artifacts, which lie beside it. */
export const CHECKPOINTS = "checkpoints";

/** Files that are to be copied: below `folder` of `root`, which tasks may write to. */
export interface CopySource {
  readonly root: string;
  readonly folder: string;
  readonly files: readonly FileBeneath[];
}

/** A file to read in parts; to be closed. */
export interface OpenedFile {
  readonly bytes: number;
  /** The bytes from `offset` to `end`. */
  read(offset: number, end: number): AsyncIterable<Buffer>;
  close(): Promise<void>;
}

/**
 * A second place for what tasks leave, which outlives this worker's disk and which several workers share.
 * A copy has a name, as `JOB/ATTEMPT.RANK`, and is there as a whole or not at all.
 */
export interface ArtifactReplica {
  /** What is there under the name stays, unless it is to be replaced. */
  copy(from: CopySource, name: string, isReplaced?: boolean): Promise<void>;
  /** Writes the files of a copy below a directory of this worker's own, each checked. */
  restore(name: string, to: string): Promise<void>;
  open(name: string, file: string): Promise<OpenedFile | undefined>;
  /** The names of copies right below a folder, without it. */
  names(folder: string): Promise<string[]>;
  /** Removes a copy, or all copies below a folder. */
  remove(name: string): Promise<void>;
  /** Removes what is too old, whoever has left it. */
  prune(): Promise<void>;
}
