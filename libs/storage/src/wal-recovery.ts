import { AppError } from "@heddle/base/errors";
import { entriesOf } from "./wal-entries.ts";
import {
  decodeWalRecord,
  findGroup,
  lastNonZero,
  type StoredRecord,
  WAL_KINDS,
  type WalRecord,
  walRecordBytes,
} from "./wal-record.ts";

/** The owner of a log; every segment names it, so that another cluster's files are refused. */
export interface WalOwner {
  readonly cluster: string;
  readonly node: string;
}

/** The content of the log when it was opened. */
export interface RecoveredLog {
  /** The last `state` record: term, commit index and vote. */
  readonly state: WalRecord | undefined;
  /** The last `snapshot` record. */
  readonly snapshot: WalRecord | undefined;
  /** Contiguous by index; a rewritten entry replaced the old one and all after it. */
  readonly entries: readonly WalRecord[];
  /**
   * Bytes of a torn last write that were truncated; 0 for a clean end, as far as that is
   * detectable.
   */
  readonly tornBytes: number;
}

/** The position of the next group. */
export interface WalPosition {
  readonly sequence: number;
  readonly offset: number;
  readonly previousCrc: number;
  readonly group: number;
}

/** The header of a segment. */
export interface WalHead extends WalOwner {
  /**
   * Since 2 the header holds `bytes`; since 3 a record may hold several entries. All else is as in
   * 1.
   */
  readonly format: 1 | 2 | 3;
  /** The size to which the segment's file was filled before it got its name. */
  readonly bytes?: number;
  /** True if the file was another segment before, whose records may follow the last group. */
  readonly reused?: true;
}

/** Newer formats have records that this reader does not know and would take for a torn write. */
const NEWEST_FORMAT = 3;

/** The unit of the segment size on the command line. */
const SIZE_UNIT_BYTES = 2 ** 20;

function readHead({ payload }: StoredRecord): WalHead {
  return JSON.parse(Buffer.from(payload).toString()) as WalHead;
}

/** The position of a record, with its predecessor in the group if it is not the first. */
interface Place {
  readonly sequence: number;
  readonly offset: number;
  /** In the oldest kept segment. */
  readonly first: boolean;
  readonly previous: StoredRecord | undefined;
}

export interface SegmentBytes {
  readonly sequence: number;
  readonly name: string;
  readonly bytes: Buffer;
}

/**
 * The highest entry index in each segment, -1 for none; it decides when a segment can be released.
 */
export type SegmentIndexes = Map<number, number>;

/**
 * Reads segments in order into a log, and distinguishes two kinds of damage:
 *
 * - a bad record followed by a valid one of a later group is **corruption**. The later group was
 *   written only after the bad one was durable, so an acknowledged entry is lost. Reading fails
 *   with `server_error`, and the node must be repaired from its peers;
 * - a bad record without a valid one of a later group is a **torn write**, which was never
 *   acknowledged: the log ends before its group. None of the group is kept: if a later group were
 *   written into the next segment, the incomplete one would stay torn forever.
 *
 * A reused segment file holds its former records after its last group. They are never read: group
 * numbers rise over the whole life of the log, so all of them are lower than the header's. The log
 * continues in the next segment at the point where its header links to the last record and has the
 * next group.
 */
export class WalReader {
  readonly #owner: WalOwner;
  readonly #segmentBytes: number;
  readonly #indexes: SegmentIndexes = new Map();
  #entries: WalRecord[] = [];
  #state: WalRecord | undefined;
  #snapshot: WalRecord | undefined;
  #previousCrc = 0;
  /** The last whole group. */
  #group = 0;
  #end: { sequence: number; offset: number } | undefined;
  #isEnded = false;
  #tornBytes = 0;

  /** `segmentBytes` is the size of new segments; older ones may have another. */
  constructor(owner: WalOwner, segmentBytes: number) {
    this.#owner = owner;
    this.#segmentBytes = segmentBytes;
  }

  read(segments: readonly SegmentBytes[]): void {
    for (const segment of segments) this.#checkLength(segment);
    for (const [at, segment] of segments.entries()) {
      this.#readSegment(segment, segments.slice(at + 1), at === 0);
      if (this.#isEnded) return;
    }
  }

  get recovered(): RecoveredLog {
    return {
      entries: this.#entries,
      state: this.#state,
      snapshot: this.#snapshot,
      tornBytes: this.#tornBytes,
    };
  }

  get indexes(): SegmentIndexes {
    return this.#indexes;
  }

  /** Undefined if there is no usable segment. */
  get position(): WalPosition | undefined {
    if (!this.#end) return undefined;
    return { ...this.#end, previousCrc: this.#previousCrc, group: this.#group };
  }

  #readSegment(segment: SegmentBytes, later: readonly SegmentBytes[], first: boolean): void {
    const { bytes, name, sequence } = segment;
    this.#indexes.set(sequence, -1);
    let groupStart = 0;
    let group: StoredRecord[] = [];
    for (let offset = 0; ; ) {
      const record = decodeWalRecord(bytes, offset);
      const place = { sequence, offset, first, previous: group.at(-1) };
      if (!record || !this.#follows(record, place)) break;
      if (offset === 0) this.#checkOwner(record, name);
      group.push(record);
      offset += record.stride;
      if (!record.endsGroup) continue;
      for (const whole of group) this.#take(whole, sequence);
      group = [];
      groupStart = offset;
    }
    this.#endSegment(segment, groupStart, later);
  }

  /** The predecessor of the oldest kept segment's first record was removed: any link fits. */
  #follows(record: StoredRecord, { sequence, offset, first, previous }: Place): boolean {
    if ((offset === 0) !== (record.kind === WAL_KINDS.segment)) return false;
    // A reused file has its former header until the new one is written.
    if (offset === 0 && record.index !== sequence) return false;
    if (offset === 0 && first) return true;
    return (
      record.previousCrc === (previous?.crc ?? this.#previousCrc) &&
      record.group === (previous?.group ?? this.#group + 1)
    );
  }

  #take(record: StoredRecord, sequence: number): void {
    this.#previousCrc = record.crc;
    this.#group = record.group;
    if (record.kind === WAL_KINDS.state) this.#state = record;
    if (record.kind === WAL_KINDS.snapshot) this.#takeSnapshot(record);
    const entries = entriesOf(record);
    if (!entries) throw corruption(`entries up to ${record.index} have no whole lengths`, sequence);
    for (const entry of entries) this.#takeEntry(entry, sequence);
  }

  /**
   * A snapshot beyond the end of the log came from another node and replaced the log. A snapshot of
   * this node, and each repetition in a segment's header, leaves the log unchanged.
   */
  #takeSnapshot(record: StoredRecord): void {
    this.#snapshot = record;
    const firstIndex = this.#entries[0]?.index;
    if (firstIndex === undefined || firstIndex > record.index) return;
    if (this.#entries[record.index - firstIndex]?.term !== record.term) this.#entries = [];
  }

  #takeEntry(record: WalRecord, sequence: number): void {
    const firstIndex = this.#entries[0]?.index ?? record.index;
    const nextIndex = firstIndex + this.#entries.length;
    if (record.index > nextIndex) {
      throw corruption(`entry ${nextIndex} is missing before entry ${record.index}`, sequence);
    }
    this.#entries.length = Math.max(0, record.index - firstIndex);
    this.#entries.push(record);
    this.#indexes.set(sequence, Math.max(this.#indexes.get(sequence) ?? -1, record.index));
  }

  #endSegment(segment: SegmentBytes, offset: number, later: readonly SegmentBytes[]): void {
    if (offset > 0) this.#end = { sequence: segment.sequence, offset };
    const [next] = later;
    if (next && offset > 0) {
      this.#checkSequence(next);
      const head = decodeWalRecord(next.bytes, 0);
      const place = { sequence: next.sequence, offset: 0, first: false, previous: undefined };
      if (head && this.#follows(head, place)) return;
    }
    this.#isEnded = true;
    const rest = segment.bytes.subarray(offset);
    for (const bytes of [rest, ...later.map((each) => each.bytes)]) {
      const group = findGroup(bytes, this.#group + 1, this.#lastPossibleGroup(segment, later));
      if (group === undefined) continue;
      throw corruption(
        `a record of the group at byte ${offset} is damaged, but group ${group} was written after it`,
        segment.sequence,
      );
    }
    this.#tornBytes = this.#tornIn(segment.bytes, offset);
  }

  /** A record takes 32 bytes at least, and a group one record. */
  #lastPossibleGroup(segment: SegmentBytes, later: readonly SegmentBytes[]): number {
    if (this.#group === 0) return Number.POSITIVE_INFINITY;
    const bytes = later.reduce(
      (sum, each) => sum + each.bytes.byteLength,
      segment.bytes.byteLength,
    );
    return this.#group + bytes / walRecordBytes(0);
  }

  /** The length of the rest of a torn write after the end of the log. */
  #tornIn(bytes: Buffer, offset: number): number {
    const rest = bytes.subarray(offset);
    const dirty = lastNonZero(rest) + 1;
    // In a file of zeros every byte shows; in a reused one only whole records or a header do.
    if (!this.#isReused(bytes, offset)) return dirty;
    const next = this.#group + 1;
    const isBegun =
      rest.byteLength >= walRecordBytes(0) && beginsGroup(rest, this.#previousCrc, next);
    return isBegun || findGroup(rest, this.#group, next) !== undefined ? dirty : 0;
  }

  /** True if the segment's header marks its file as reused. */
  #isReused(bytes: Buffer, offset: number): boolean {
    const head = offset > 0 ? decodeWalRecord(bytes, 0) : undefined;
    return head !== undefined && readHead(head).reused === true;
  }

  /**
   * A file is filled and synced before it becomes a segment, so a crash never leaves a shorter one.
   * A shorter one was truncated at rest, and the loss would look like the zeros of a new segment.
   */
  #checkLength({ bytes, sequence }: SegmentBytes): void {
    const head = decodeWalRecord(bytes, 0);
    const filled = head?.kind === WAL_KINDS.segment ? readHead(head).bytes : undefined;
    const size = bytes.byteLength;
    if (filled === undefined ? this.#mayBeWhole(bytes) : size >= filled) return;
    const expected = filled === undefined ? "more" : `${filled}`;
    const what = `its file has ${size} bytes of the ${expected} that it was filled to, and no crash shortens one`;
    throw corruption(what, sequence);
  }

  /**
   * For headers without a size. The option for the segment size may have been another one, in whole
   * units. Or one large group has extended the file, which then ends with that group.
   */
  #mayBeWhole(bytes: Buffer): boolean {
    const size = bytes.byteLength;
    if (size === 0) return false;
    if (size >= this.#segmentBytes) return true;
    if (size % Math.min(SIZE_UNIT_BYTES, this.#segmentBytes) === 0) return true;
    let end = 0;
    for (let record = decodeWalRecord(bytes, end); record; record = decodeWalRecord(bytes, end)) {
      end += record.stride;
    }
    return end === size;
  }

  #checkSequence({ sequence }: SegmentBytes): void {
    const before = [...this.#indexes.keys()].at(-1);
    if (before !== undefined && sequence !== before + 1) {
      throw corruption(`segment ${before + 1} is missing`, sequence);
    }
  }

  #checkOwner(header: StoredRecord, name: string): void {
    const owner = readHead(header);
    if (owner.format > NEWEST_FORMAT) {
      throw new AppError(
        "conflict",
        `${name} is of format ${owner.format}, and this version reads formats up to ${NEWEST_FORMAT}; start it with the newer version of Heddle that wrote it`,
      );
    }
    if (owner.cluster === this.#owner.cluster && owner.node === this.#owner.node) return;
    throw new AppError(
      "conflict",
      `${name} belongs to node ${owner.node} of cluster ${owner.cluster}, not to node ${this.#owner.node} of cluster ${this.#owner.cluster}; start with the data directory of this node, or an empty one`,
    );
  }
}

function corruption(what: string, sequence: number): AppError {
  return new AppError(
    "server_error",
    `the write-ahead log is corrupt in segment ${sequence}: ${what}; acknowledged entries are lost on this node: keep the files, remove this member from the group and add it again with an empty data directory`,
  );
}

/** True if the bytes hold the header of a record of that group that links to that CRC. */
function beginsGroup(bytes: Buffer, previousCrc: number, group: number): boolean {
  return bytes.readUInt32LE(4) === previousCrc && bytes.readUInt32LE(16) === group % 2 ** 32;
}
