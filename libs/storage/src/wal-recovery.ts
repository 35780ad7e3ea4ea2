import { AppError } from "@heddle/base/errors";
import { decodeWalRecord, type StoredRecord, WAL_KINDS, type WalRecord } from "./wal-record.ts";

/** Who a log belongs to; stands in every segment, so that another cluster's files are refused. */
export interface WalOwner {
  readonly cluster: string;
  readonly node: string;
}

/** What the log held when it was opened. */
export interface RecoveredLog {
  /** The last `state` record: term, commit index and vote. */
  readonly state: WalRecord | undefined;
  /** The last `snapshot` record. */
  readonly snapshot: WalRecord | undefined;
  /** Contiguous by index; an entry written again replaced the old one and all after it. */
  readonly entries: readonly WalRecord[];
  /** Bytes of a torn last write that were cut off; 0 for a clean end. */
  readonly tornBytes: number;
}

/** Where the next group goes. */
export interface WalPosition {
  readonly sequence: number;
  readonly offset: number;
  readonly previousCrc: number;
  readonly group: number;
}

export interface SegmentBytes {
  readonly sequence: number;
  readonly name: string;
  readonly bytes: Buffer;
}

/** The highest entry index in each segment, -1 for none: what decides when a segment may go. */
export type SegmentIndexes = Map<number, number>;

/**
 * Reads segments in order into a log, and tells damage apart:
 *
 * - a bad record with a later valid one of a later group behind it is **corruption**: that later
 *   group was only written after the bad one had been durable, so an acknowledged entry is lost
 *   here; reading refuses (`server_error`) and the node must be repaired from its peers;
 * - a bad record with nothing valid of a later group behind it is a **torn write**, which was never
 *   acknowledged: the log ends before its group. None of the group is kept: it has no end, and were
 *   one written after it into the next segment, it would look like a torn one for ever.
 */
export class WalReader {
  readonly #owner: WalOwner;
  readonly #indexes: SegmentIndexes = new Map();
  #entries: WalRecord[] = [];
  #state: WalRecord | undefined;
  #snapshot: WalRecord | undefined;
  #previousCrc = 0;
  /** The last whole group. */
  #group = 0;
  #end: { sequence: number; offset: number } | undefined;
  #tornBytes = 0;

  constructor(owner: WalOwner) {
    this.#owner = owner;
  }

  read(segments: readonly SegmentBytes[]): void {
    for (const [at, segment] of segments.entries()) {
      this.#readSegment(segment, segments.slice(at + 1), at === 0);
      if (this.#tornBytes > 0) return;
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

  /** Undefined where there is no usable segment at all. */
  get position(): WalPosition | undefined {
    if (!this.#end) return undefined;
    return { ...this.#end, previousCrc: this.#previousCrc, group: this.#group };
  }

  #readSegment(segment: SegmentBytes, later: readonly SegmentBytes[], first: boolean): void {
    const { bytes, name, sequence } = segment;
    this.#checkSequence(segment);
    this.#indexes.set(sequence, -1);
    let groupStart = 0;
    let group: StoredRecord[] = [];
    for (let offset = 0; ; ) {
      const record = decodeWalRecord(bytes, offset);
      if (!record || !this.#follows(record, offset, { first, previous: group.at(-1) })) break;
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

  /** The first record of the oldest kept segment has a predecessor that was removed: any link fits. */
  #follows(
    record: StoredRecord,
    offset: number,
    { first, previous }: { first: boolean; previous: StoredRecord | undefined },
  ): boolean {
    if ((offset === 0) !== (record.kind === WAL_KINDS.segment)) return false;
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
    if (record.kind === WAL_KINDS.entry) this.#takeEntry(record, sequence);
  }

  /**
   * A snapshot that the log does not lead up to came from another node and replaced the log; one of
   * this node's own, and each repetition at the head of a segment, leaves the log as it is.
   */
  #takeSnapshot(record: StoredRecord): void {
    this.#snapshot = record;
    const firstIndex = this.#entries[0]?.index;
    if (firstIndex === undefined || firstIndex > record.index) return;
    if (this.#entries[record.index - firstIndex]?.term !== record.term) this.#entries = [];
  }

  #takeEntry(record: StoredRecord, sequence: number): void {
    const firstIndex = this.#entries[0]?.index ?? record.index;
    const nextIndex = firstIndex + this.#entries.length;
    if (record.index > nextIndex && record.index === (this.#snapshot?.index ?? -1) + 1) {
      this.#entries = [];
    } else if (record.index > nextIndex) {
      throw corruption(`entry ${nextIndex} is missing before entry ${record.index}`, sequence);
    } else {
      this.#entries.length = Math.max(0, record.index - firstIndex);
    }
    this.#entries.push(record);
    this.#indexes.set(sequence, Math.max(this.#indexes.get(sequence) ?? -1, record.index));
  }

  #endSegment(segment: SegmentBytes, offset: number, later: readonly SegmentBytes[]): void {
    const rest = segment.bytes.subarray(offset);
    const dirty = lastNonZero(rest) + 1;
    if (dirty === 0) {
      if (offset > 0) this.#end = { sequence: segment.sequence, offset };
      else if (later.length > 0) throw corruption("the segment is empty", segment.sequence);
      return;
    }
    const laterGroup = [rest, ...later.map((next) => next.bytes)]
      .map((bytes) => highestGroup(bytes))
      .reduce((highest, group) => Math.max(highest, group), -1);
    if (laterGroup > this.#group + 1) {
      throw corruption(
        `a record of the group at byte ${offset} is damaged, but group ${laterGroup} was written after it`,
        segment.sequence,
      );
    }
    this.#tornBytes = dirty;
    if (offset > 0) this.#end = { sequence: segment.sequence, offset };
  }

  #checkSequence({ sequence }: SegmentBytes): void {
    const before = [...this.#indexes.keys()].at(-1);
    if (before !== undefined && sequence !== before + 1) {
      throw corruption(`segment ${before + 1} is missing`, sequence);
    }
  }

  #checkOwner(header: StoredRecord, name: string): void {
    const owner = JSON.parse(Buffer.from(header.payload).toString()) as WalOwner;
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

function lastNonZero(bytes: Buffer): number {
  let at = bytes.byteLength - 1;
  while (at >= 0 && bytes[at] === 0) at--;
  return at;
}

/** The highest group of any valid record in the bytes, wherever it starts; -1 for none. */
function highestGroup(bytes: Buffer): number {
  let highest = -1;
  for (let offset = 0; offset < bytes.byteLength; offset += 8) {
    const record = decodeWalRecord(bytes, offset);
    if (record) highest = Math.max(highest, record.group);
  }
  return highest;
}
