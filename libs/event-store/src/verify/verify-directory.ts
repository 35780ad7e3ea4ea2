import { toAppError } from "@heddle/base/errors";
import type { StorageFiles } from "@heddle/storage/storage-files";
import { decodeWalRecord, WAL_KINDS } from "@heddle/storage/wal-record";
import { CheckpointFile } from "../log/checkpoint-file.ts";
import { levelPath } from "../log/hash-levels.ts";
import { type PlacedRecord, type RecordEnd, scanRecords } from "../log/record-file.ts";
import {
  damaged,
  MAX_RECORD_BYTES,
  readSegmentHead,
  segmentPath,
  segmentsAmong,
} from "../log/segment.ts";
import { TreeFrontier } from "../merkle/frontier.ts";
import { leafHash, sameHash } from "../merkle/hash.ts";
import { HASH_BYTES } from "../merkle/sibling-sides.ts";
import { levelWidth, TILE_WIDTH } from "../merkle/tile.ts";
import type { TreeHead } from "../merkle/verify-proof.ts";
import type { LogTrust } from "../notes/checkpoint.ts";
import { parseNote, type SignedNote } from "../notes/signed-note.ts";
import { FaultList, type LogFault } from "./faults.ts";
import { KnownHeads } from "./known-heads.ts";

/** What the directory of a log shows, where it has no fault. */
export interface DirectoryReport {
  /** The first entry that is kept. */
  readonly first: number;
  readonly size: number;
  /** The tree size of the last checkpoint. */
  readonly signed: number;
  readonly checkpoints: number;
  readonly faults: readonly LogFault[];
}

/**
 * Verifies the directory of a log that no process has open, without changing it. It checks each
 * entry, hash and checkpoint, and that all checkpoints, also given ones, are of one history.
 */
export async function verifyDirectory(
  { files, directory }: { readonly files: StorageFiles; readonly directory: string },
  trust: LogTrust,
  known: readonly SignedNote[] = [],
): Promise<DirectoryReport> {
  const faults = new FaultList();
  const heads = new KnownHeads(faults, trust);
  const check = new DirectoryCheck(files, directory, heads, faults);
  let last: TreeHead | undefined;
  let checkpoints = 0;
  for (const [at, note] of known.entries()) heads.add(note, `given checkpoint ${at + 1}`);
  try {
    const { notes, tornBytes } = await CheckpointFile.notes(files, directory);
    if (tornBytes > 0) faults.add("unfinished", unfinished("the checkpoints", tornBytes));
    for (const bytes of notes) {
      checkpoints++;
      const head = heads.add(parseNote(bytes), `kept checkpoint ${checkpoints}`);
      if (head && head.size >= (last?.size ?? 0)) last = head;
    }
    await check.run(trust.origin);
    if (check.tornBytes > 0) faults.add("unfinished", unfinished("the entries", check.tornBytes));
  } catch (error) {
    faults.add("changed", toAppError(error).message);
  }
  const { first, size } = check;
  const isReadable = faults.faults.every(({ kind }) => kind === "unfinished");
  if (isReadable) {
    const explain = (of: number): ["truncated", string] => {
      return [
        "truncated",
        `covers more than the ${size} entries here: the last ${of - size} are missing`,
      ];
    };
    heads.finish(check.isSigned(last), explain);
    if (!last) faults.add("uncovered", "no kept checkpoint signs the entries");
  }
  const signed = last?.size ?? 0;
  return { first, size, signed, checkpoints, faults: faults.faults };
}

function unfinished(what: string, bytes: number): string {
  return (
    `the last ${bytes} bytes of ${what} are an unfinished write, or were changed. ` +
    "Where the machine lost power, the next start repairs them"
  );
}

class DirectoryCheck {
  readonly #files: StorageFiles;
  readonly #directory: string;
  readonly #heads: KnownHeads;
  readonly #faults: FaultList;
  readonly #frontier = new TreeFrontier();
  /** Keyed by level, what the entries give since the last comparison. */
  readonly #hashes = new Map<number, Uint8Array[]>();
  /** Roots at the sizes of checkpoints. */
  readonly #roots = new Map<number, Uint8Array>();
  /** Entries whose hashes are in files. */
  #sealed = 0;
  first = 0;
  tornBytes = 0;

  constructor(files: StorageFiles, directory: string, heads: KnownHeads, faults: FaultList) {
    this.#files = files;
    this.#directory = directory;
    this.#heads = heads;
    this.#faults = faults;
  }

  get size(): number {
    return this.#frontier.size;
  }

  isSigned(head: TreeHead | undefined): boolean {
    const root = head && this.#roots.get(head.size);
    return head !== undefined && root !== undefined && sameHash(root, head.root);
  }

  async run(origin: string): Promise<void> {
    const firsts = segmentsAmong(await this.#files.list(this.#directory));
    this.#compare();
    this.first = firsts[0] ?? 0;
    this.#sealed = firsts.at(-1) ?? 0;
    await this.#takeRemoved();
    let end: RecordEnd | undefined;
    for (const first of firsts) {
      if (first !== this.size) {
        this.#faults.add("order", `the files of entries ${this.size} to ${first - 1} are missing`);
        return;
      }
      const isLast = first === this.#sealed;
      end = await this.#readSegment(first, origin, end);
      if (!isLast && this.tornBytes > 0) {
        this.#faults.add("changed", `${segmentPath(this.#directory, first)} is damaged at its end`);
        return;
      }
    }
    await this.#compareHashes();
  }

  /** Entries that retention removed have hashes only. */
  async #takeRemoved(): Promise<void> {
    const path = levelPath(this.#directory, 0);
    if (this.first === 0) return;
    const file = await this.#files.open(path, "read");
    try {
      const bytes = TILE_WIDTH * HASH_BYTES;
      for (let at = 0; at < this.first; at += TILE_WIDTH) {
        const hashes = await file.read(bytes, at * HASH_BYTES);
        if (hashes.byteLength < bytes) throw damaged(path, `it ends before entry ${this.first}`);
        for (let from = 0; from < bytes; from += HASH_BYTES) {
          this.#take(hashes.subarray(from, from + HASH_BYTES));
        }
        await this.#compareHashes();
      }
    } finally {
      await file.close();
    }
  }

  async #readSegment(first: number, origin: string, before?: RecordEnd): Promise<RecordEnd> {
    const path = segmentPath(this.#directory, first);
    const file = await this.#files.open(path, "read");
    try {
      const head = decodeWalRecord(Buffer.from(await file.read(MAX_RECORD_BYTES, 0)), 0);
      if (!head) throw damaged(path, "its head is not readable");
      readSegmentHead(head, path, origin);
      const chain = before ?? { crc: head.previousCrc, group: head.group - 1 };
      const from = { ...chain, offset: 0 };
      const visit = async (records: readonly PlacedRecord[]) => {
        for (const { record } of records) {
          if (record.kind !== WAL_KINDS.entry) continue;
          if (record.index !== this.size) {
            this.#faults.add("order", `${path} has entry ${record.index} in place of ${this.size}`);
          }
          this.#take(leafHash(record.payload));
          if (this.size % TILE_WIDTH === 0) await this.#compareHashes();
        }
      };
      const options = { maxRecordBytes: MAX_RECORD_BYTES, from, visit };
      const { end, tornBytes } = await scanRecords(file, path, options);
      this.tornBytes = tornBytes;
      return end;
    } finally {
      await file.close();
    }
  }

  #take(leaf: Uint8Array): void {
    this.#frontier.append(leaf, (level, hash) => {
      const hashes = this.#hashes.get(level) ?? [];
      hashes.push(hash);
      this.#hashes.set(level, hashes);
    });
    this.#compare();
  }

  #compare(): void {
    if (!this.#heads.has(this.size)) return;
    const root = this.#frontier.root();
    this.#roots.set(this.size, root);
    this.#heads.compare({ size: this.size, root });
  }

  /** The files must have the hashes that the entries give. */
  async #compareHashes(): Promise<void> {
    for (const [level, hashes] of this.#hashes) {
      this.#hashes.delete(level);
      const end = levelWidth(this.size, level);
      if (end > levelWidth(this.#sealed, level)) continue;
      const path = levelPath(this.#directory, level);
      const expected = Buffer.concat(hashes);
      const file = await this.#files.open(path, "read");
      const found = await file
        .read(expected.byteLength, end * HASH_BYTES - expected.byteLength)
        .finally(() => file.close());
      if (sameHash(found, expected)) continue;
      const first = end - hashes.length;
      this.#faults.add(
        "changed",
        `${path} has other hashes than the entries, from hash ${first} on`,
      );
    }
  }
}
