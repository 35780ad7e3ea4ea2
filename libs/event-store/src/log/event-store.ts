import { orAborted } from "@heddle/base/async/or-aborted";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError } from "@heddle/base/errors";
import type { StorageFiles } from "@heddle/storage/storage-files";
import { recordBytes, WAL_KINDS } from "@heddle/storage/wal-record";
import { sameHash } from "../merkle/hash.ts";
import { TileTree } from "../merkle/proofs.ts";
import { type ReadTile, TILE_WIDTH } from "../merkle/tile.ts";
import { isConsistent, isIncluded } from "../merkle/verify-proof.ts";
import { checkOrigin, checkpointText, parseCheckpoint } from "../notes/checkpoint.ts";
import type { NoteKey } from "../notes/key-text.ts";
import type { NoteSigner, NoteVerifier } from "../notes/note-key.ts";
import {
  isSameKey,
  parseSignatures,
  type SignedNote,
  signNote,
  verifyNote,
  withSignatures,
} from "../notes/signed-note.ts";
import type { TlogProof } from "../notes/tlog-proof.ts";
import { type AppendedRange, AppendQueue } from "./append-queue.ts";
import { beginLogAt, type ReadLeaves } from "./begin-at.ts";
import { CheckpointFile } from "./checkpoint-file.ts";
import { type EntryPage, type FollowOptions, followLog } from "./follow-log.ts";
import type { HashLevels } from "./hash-levels.ts";
import {
  type ActiveSegment,
  type LogPlace,
  type RecoveredEvents,
  recoverEvents,
  sealSegment,
} from "./log-recovery.ts";
import { RecentEntries } from "./recent-entries.ts";
import { MAX_ENTRY_BYTES, segmentPath } from "./segment.ts";
import { checkSequence, PAGE_BYTES, SegmentReader } from "./segment-reader.ts";
import type { TreeWriter } from "./tree-writer.ts";

export interface EventStoreOptions {
  readonly files: StorageFiles;
  readonly directory: string;
  /** The name of the log, which its checkpoints begin with. */
  readonly origin: string;
  /** Entries of a segment: 65,536 by default; 256 is possible too. */
  readonly segmentEntries?: number;
  /** Bytes of entries that may wait for the disk; 64 MiB by default. */
  readonly maxPendingBytes?: number;
  /** How much a segment's file grows at a time; 1 MiB by default. */
  readonly growBytes?: number;
}

/** Entries from the first one to before `end`, in one file. */
export interface StoredSegment {
  readonly first: number;
  readonly end: number;
  readonly bytes: number;
}

/** The most bytes of one durable write. */
const MAX_GROUP_BYTES = 8 * 2 ** 20;
const RECENT_BYTES = 4 * 2 ** 20;
/** The most bytes of entries on the disk that are not hashed yet: about 4 ms of work. */
const MAX_UNHASHED_BYTES = 2 * 2 ** 20;
/** Streams of one log. */
const MAX_STREAMS = 1_024;

/**
 * An append-only log of entries with a Merkle tree over them. One process owns the directory.
 *
 * - While one group of entries is written, those appended meanwhile become the next group.
 * - A failed write is final: every later append rejects, and the owner must end the process.
 * - What is on the disk counts: `size`, proofs and checkpoints never cover more.
 */
export class EventStore {
  readonly #place: LogPlace;
  readonly #levels: HashLevels;
  readonly #tree: TreeWriter;
  readonly #checkpoints: CheckpointFile;
  readonly #reader: SegmentReader;
  readonly #queue: AppendQueue;
  readonly #recent: RecentEntries;
  /** Changes other than appends, one at a time. */
  readonly #changes = new SerialQueue();
  readonly #ended = new AbortController();
  #active: ActiveSegment;
  #first: number;
  #size: number;
  #writing: Promise<void> | undefined;
  #failure: AppError | undefined;
  #grown = Promise.withResolvers<void>();
  #streams = 0;

  private constructor(
    place: LogPlace,
    recovered: RecoveredEvents,
    checkpoints: CheckpointFile,
    maxPendingBytes: number,
  ) {
    this.#place = place;
    this.#levels = recovered.levels;
    this.#tree = recovered.tree;
    this.#active = recovered.active;
    this.#first = recovered.first;
    this.#size = recovered.tree.size;
    this.#checkpoints = checkpoints;
    this.#reader = new SegmentReader(place);
    this.#queue = new AppendQueue(this.#size, maxPendingBytes);
    this.#recent = new RecentEntries(this.#size, RECENT_BYTES);
  }

  /**
   * Opens the log in the directory, or creates one. Throws `server_error` on damage, also where the
   * last checkpoint covers what is not there, and `conflict` on the files of another log. An origin
   * that no checkpoint can have is an `invalid_value`.
   */
  static async open(options: EventStoreOptions): Promise<{ log: EventStore; tornBytes: number }> {
    const { files, directory, origin } = options;
    const place = placeOf(options);
    const recovered = await recoverEvents(place);
    let checkpoints: CheckpointFile | undefined;
    try {
      checkpoints = await CheckpointFile.open(files, directory, origin);
      const maxPendingBytes = options.maxPendingBytes ?? 64 * 2 ** 20;
      const log = new EventStore(place, recovered, checkpoints, maxPendingBytes);
      await log.#checkLatest();
      return { log, tornBytes: recovered.tornBytes };
    } catch (error) {
      await checkpoints?.close();
      await recovered.active.file.close();
      await recovered.levels.close();
      throw error;
    }
  }

  /**
   * Makes the directory, which no process has open, a log whose entries before `first` are removed
   * already; their hashes come from a reader. See begin-at.ts.
   */
  static async beginAt(
    options: EventStoreOptions,
    first: number,
    readLeaves: ReadLeaves,
  ): Promise<void> {
    await beginLogAt(placeOf(options), first, readLeaves);
  }

  /** The first entry that retention has kept. */
  get first(): number {
    return this.#first;
  }

  /** The number of entries on the disk, with those that retention removed. */
  get size(): number {
    return this.#size;
  }

  /** The last checkpoint. */
  get checkpoint(): SignedNote | undefined {
    return this.#checkpoints.latest;
  }

  /** The sizes that have a checkpoint. */
  get checkpointSizes(): readonly number[] {
    return this.#checkpoints.sizes;
  }

  /** The checkpoint of the smallest tree with at least that size. */
  checkpointFrom(size: number): Promise<SignedNote | undefined> {
    return this.#checkpoints.from(size);
  }

  /**
   * Appends the entries, which must not change afterwards; resolves when they are on the disk. After a
   * crash a part of the last entries may be there, never one without those before it.
   */
  append(entries: readonly Uint8Array[]): Promise<AppendedRange> {
    if (this.#failure) return Promise.reject(this.#failure);
    const large = entries.find((entry) => entry.byteLength > MAX_ENTRY_BYTES);
    if (large) {
      const message = `an event of ${large.byteLength} bytes is too large: ${MAX_ENTRY_BYTES} are allowed`;
      return Promise.reject(new AppError("request_too_large", message));
    }
    if (entries.length === 0) return Promise.resolve({ first: this.#size, end: this.#size });
    const appended = this.#queue.add(entries);
    this.#writing ??= this.#write();
    return appended;
  }

  /** At most `limit` entries or about 1 MiB, and at least one where there are any from that one on. */
  async read(from: number, limit = TILE_WIDTH): Promise<EntryPage> {
    const size = this.#size;
    checkSequence(from, this.#first, size);
    if (from === size) return { first: from, entries: [] };
    const count = Math.max(1, Math.min(limit, size - from));
    const recent = this.#recent.from(from, count, PAGE_BYTES);
    if (recent) return { first: from, entries: recent };
    const read = this.#reader.read(from, count, this.#active);
    const entries = await read.catch((error: unknown) => {
      // Retention may have removed it meanwhile.
      checkSequence(from, this.#first, size);
      throw error;
    });
    return { first: from, entries };
  }

  /**
   * The entries from that one on, in pages; without `follow` up to the present end. Ends with the
   * signal's reason, or `unavailable` when the log is closed.
   */
  async *stream(from: number, options: FollowOptions = {}): AsyncGenerator<EntryPage, void> {
    checkSequence(from, this.#first, this.#size);
    if (this.#streams >= MAX_STREAMS) {
      const message = `${MAX_STREAMS} streams of events are open. Try again later`;
      throw new AppError("overloaded", message, { retryAfterMs: 1_000 });
    }
    this.#streams++;
    try {
      yield* followLog(this, from, options);
    } finally {
      this.#streams--;
    }
  }

  /** Resolves when the log has more entries than that. */
  async grownBeyond(size: number, signal?: AbortSignal): Promise<void> {
    const signals = signal ? [signal, this.#ended.signal] : [this.#ended.signal];
    const ended = AbortSignal.any(signals);
    while (this.#size <= size) await orAborted(this.#grown.promise, ended);
  }

  /** Tiles of trees of at most `size` entries, also of those that retention removed. */
  readonly readTile: ReadTile = async (tile) => {
    await this.#tree.reach(this.#size);
    return this.#levels.readTile(tile);
  };

  /** The tree of the first entries. */
  tree(size = this.#size): TileTree {
    if (size > this.#size) throw new RangeError(`the log has ${this.#size} entries, not ${size}`);
    return new TileTree(size, this.readTile);
  }

  /**
   * Signs the present tree and keeps the checkpoint. Where there is one of this size, it gets the
   * signatures that it lacks, if any.
   */
  sign(signers: readonly NoteSigner[]): Promise<SignedNote> {
    return this.#changes.run(async () => {
      const { origin } = this.#place.shape;
      const size = this.#size;
      const root = await this.tree(size).root();
      const text = checkpointText({ origin, size, root, extensions: [] });
      const signed = signNote(text, signers);
      const known = this.#checkpoints.latest;
      const note = known?.text === text ? withSignatures(known, signed.signatures) : signed;
      if (known?.signatures.length === note.signatures.length && known.text === text) return known;
      await this.#checkpoints.put(size, note);
      return note;
    });
  }

  /**
   * Keeps a checkpoint that was signed elsewhere, unless a later one is kept. Throws `server_error`
   * where this log's tree of that size has another root: the two logs differ.
   */
  keep(note: SignedNote): Promise<void> {
    return this.#changes.run(async () => {
      const { size, root, origin } = parseCheckpoint(note.text);
      if (origin !== this.#place.shape.origin) {
        throw new AppError("conflict", `the checkpoint is of the log ${origin}`);
      }
      if (size < (this.#checkpoints.sizes.at(-1) ?? 0)) return;
      if (sameHash(await this.tree(size).root(), root)) await this.#checkpoints.put(size, note);
      else throw this.#otherTree(size);
    });
  }

  /**
   * Keeps a checkpoint beside later ones, with the signatures that are kept of its tree already.
   * Throws `server_error` where this log's tree of that size has another root.
   */
  keepCosigned(note: SignedNote): Promise<void> {
    return this.#changes.run(async () => {
      const { size, root } = parseCheckpoint(note.text);
      if (!sameHash(await this.tree(size).root(), root)) throw this.#otherTree(size);
      const known = await this.#checkpoints.from(size);
      const isSame = known?.text === note.text;
      await this.#checkpoints.put(size, isSame ? withSignatures(known, note.signatures) : note);
    });
  }

  /**
   * Adds the signatures of the given witnesses, of these lines, to a kept checkpoint. Throws
   * `permission_denied` where none signed it, or where one of their signatures is wrong.
   */
  cosign(size: number, lines: string, witnesses: readonly NoteVerifier[]): Promise<SignedNote> {
    return this.#changes.run(async () => {
      const note = await this.#checkpoints.from(size);
      if (!note || parseCheckpoint(note.text).size !== size) {
        throw new AppError("not_found", `there is no checkpoint of ${size} events`);
      }
      const signatures = parseSignatures(lines);
      const verified = verifyNote({ text: note.text, signatures }, witnesses);
      const isVerified = (key: NoteKey) => verified.some((witness) => isSameKey(key, witness));
      const cosigned = withSignatures(note, signatures.filter(isVerified));
      await this.#checkpoints.put(size, cosigned);
      return cosigned;
    });
  }

  /** Proves an entry by the last checkpoint. Throws `not_found` where none covers it. */
  async prove(sequence: number): Promise<TlogProof> {
    const checkpoint = this.#checkpoints.latest;
    const head = checkpoint && parseCheckpoint(checkpoint.text);
    if (!checkpoint || !head || sequence >= head.size) {
      throw new AppError("not_found", `no checkpoint covers event ${sequence} yet`);
    }
    const tree = this.tree(head.size);
    const hashes = await tree.inclusionProof(sequence);
    const leaf = await tree.rangeRoot({ begin: sequence, end: sequence + 1 });
    if (!isIncluded(leaf, sequence, head, hashes)) throw this.#damagedHashes();
    return { index: sequence, hashes, checkpoint };
  }

  /** Proves that the first tree is a prefix of the second one. */
  async proveConsistency(from: number, to: number): Promise<Uint8Array[]> {
    const [old, tree] = [this.tree(from), this.tree(to)];
    const proof = await tree.consistencyProof(from);
    const heads = [old, tree].map(async (each) => ({ size: each.size, root: await each.root() }));
    const [oldHead, head] = await Promise.all(heads);
    if (!oldHead || !head || !isConsistent(oldHead, head, proof)) throw this.#damagedHashes();
    return proof;
  }

  /**
   * Removes the full segments whose every entry is before that one and is covered by a checkpoint.
   * Their hashes stay, so proofs hold. Returns the first entry that is kept.
   */
  prune(before: number): Promise<number> {
    return this.#changes.run(async () => {
      const { files, directory, shape } = this.#place;
      const covered = this.#checkpoints.sizes.at(-1) ?? 0;
      const limit = Math.min(before, covered, this.#active.first);
      while (this.#first + shape.width <= limit) {
        const gone = this.#first;
        this.#first += shape.width;
        await this.#reader.remove(gone);
      }
      await files.syncDirectory(directory);
      return this.#first;
    });
  }

  /** The full segments, the oldest first: they are what `prune` removes. */
  async segments(): Promise<readonly StoredSegment[]> {
    const { files, directory, shape } = this.#place;
    const found: StoredSegment[] = [];
    for (let first = this.#first; first < this.#active.first; first += shape.width) {
      const file = await files.open(segmentPath(directory, first), "read");
      const bytes = await file.size().finally(() => file.close());
      found.push({ first, end: first + shape.width, bytes });
    }
    return found;
  }

  async close(): Promise<void> {
    this.#failure ??= new AppError("unavailable", "the event log is closed");
    this.#ended.abort(this.#failure);
    await this.#writing;
    await this.#tree.within(0);
    await this.#changes.idle();
    await this.#reader.close();
    await this.#checkpoints.close();
    await this.#active.file.close();
    await this.#levels.close();
  }

  async #checkLatest(): Promise<void> {
    const note = this.#checkpoints.latest;
    if (!note) return;
    const { size, root } = parseCheckpoint(note.text);
    const { directory } = this.#place;
    if (size > this.#size) {
      const message = `${directory} has ${this.#size} events, and its last checkpoint covers ${size}`;
      throw new AppError(
        "server_error",
        `${message}: events were lost. Restore the directory from a backup, or from another master`,
      );
    }
    if (!sameHash(await this.tree(size).root(), root)) throw this.#damagedHashes();
  }

  #otherTree(size: number): AppError {
    const { directory } = this.#place;
    const message = `the first ${size} events in ${directory} are not those of the signed checkpoint`;
    const advice = "Verify the directory offline; then remove it, and start this process again";
    return new AppError("server_error", `${message}: events were changed. ${advice}`);
  }

  #damagedHashes(): AppError {
    const { directory } = this.#place;
    const message = `the hashes in ${directory} do not fit its checkpoint: events or hashes were changed`;
    return new AppError("server_error", `${message}. Verify the directory offline to find which`);
  }

  async #write(): Promise<void> {
    // Appends of this turn are one group.
    await undefined;
    try {
      while (!this.#queue.isEmpty) {
        const left = this.#active.first + this.#place.shape.width - this.#size;
        await this.#writeGroup(this.#queue.take(left, MAX_GROUP_BYTES));
      }
    } catch (error) {
      this.#fail(error);
    }
    this.#writing = undefined;
  }

  async #writeGroup(entries: readonly Uint8Array[]): Promise<void> {
    const { file, offsets, first } = this.#active;
    const records = entries.map((payload, at) => {
      return { kind: WAL_KINDS.entry, term: 0, index: this.#size + at, payload };
    });
    let offset = file.end.offset;
    const written = file.append(records);
    // While the disk works: a failed write ends the log, so the tree is not used after it.
    this.#tree.add(entries);
    await written;
    await this.#tree.within(MAX_UNHASHED_BYTES);
    for (const record of records) {
      const stride = recordBytes(record);
      offsets.add(offset, stride);
      offset += stride;
    }
    const size = this.#size + entries.length;
    if (size === first + this.#place.shape.width) {
      await this.#tree.reach(size);
      this.#active = await sealSegment(this.#place, this.#active, this.#levels);
    }
    this.#recent.add(entries);
    this.#size = size;
    this.#queue.settle(size);
    const grown = this.#grown;
    this.#grown = Promise.withResolvers();
    grown.resolve();
  }

  #fail(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#failure = new AppError("server_error", `the event log cannot write: ${reason}`, {
      cause: error,
    });
    this.#queue.fail(this.#failure);
    this.#ended.abort(this.#failure);
  }
}

function placeOf({ files, directory, origin, ...options }: EventStoreOptions): LogPlace {
  checkOrigin(origin);
  const { segmentEntries: width = TILE_WIDTH ** 2, growBytes = 2 ** 20 } = options;
  if (width !== TILE_WIDTH && width !== TILE_WIDTH ** 2) {
    throw new RangeError(`a segment has 256 or 65,536 entries, not ${width}`);
  }
  return { files, directory, shape: { origin, width }, growBytes };
}
