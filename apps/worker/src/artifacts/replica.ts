import type { FileBeneath } from "@heddle/base/beneath";

/** The injection token of the second place: an ArtifactReplica, or null. */
export const ARTIFACT_REPLICA = Symbol("ArtifactReplica");

/** The folder with copies of checkpoints, `JOB/COPY`, beside those of artifacts. */
export const CHECKPOINTS = "checkpoints";

/** Files to copy: below `folder` of `root`, to which tasks may write. */
export interface CopySource {
  readonly root: string;
  readonly folder: string;
  readonly files: readonly FileBeneath[];
}

/** A file to read in parts; the caller closes it. */
export interface OpenedFile {
  readonly bytes: number;
  /** The bytes from `offset` to `end`. */
  read(offset: number, end: number): AsyncIterable<Buffer>;
  close(): Promise<void>;
}

/**
 * A second place for artifacts and checkpoints, which outlives this worker's disk and which several
 * workers share. A copy has a name, as `JOB/ATTEMPT.RANK`, and appears atomically.
 */
export interface ArtifactReplica {
  /** An existing copy of that name stays, unless it is to be replaced. */
  copy(from: CopySource, name: string, isReplaced?: boolean): Promise<void>;
  /** Writes the files of a copy below a directory of this worker's own; each is verified. */
  restore(name: string, to: string): Promise<void>;
  open(name: string, file: string): Promise<OpenedFile | undefined>;
  /** The names of copies directly below a folder, relative to it. */
  names(folder: string): Promise<string[]>;
  /** Removes a copy, or all copies below a folder. */
  remove(name: string): Promise<void>;
  /** Removes what is too old, from any worker. */
  prune(): Promise<void>;
}
