import { AppError } from "@heddle/base/errors";
import type { StageDtype } from "@heddle/contracts/models/model-division";
import type { KvSequences } from "../../llama/kv-cache/prefix-tree.ts";
import { LIBRARY_RELEASE } from "../../llama/native/native-library.ts";

/**
 * What goes round the stages of a model for each decode, as one frame of little-endian numbers:
 *
 * - 11 u32: bytes after this one, magic and version, epoch, step, status, changes, rows, row
 *   length, microseconds, bytes of a number of the residual stream, adapter.
 * - The adapter's scale as f32.
 * - For each change 4 i32: sequence, other, begin, end.
 * - For each row 3 i32: token, position, sequence.
 * - The residual stream as f32 or bf16, row by row, filled up to 4 bytes. It is absent, with a row
 *   length of 0, before the first stage.
 *
 * The last stage begins a frame, and each stage sends it on. To the last one it comes back with
 * what left the one before it.
 */
export interface StageFrame {
  /** The epoch of this run of the last stage; the others forget everything where it is new. */
  epoch: number;
  /** Counts from 0 in an epoch. */
  step: number;
  status: number;
  /** That the stages so far have computed. */
  micros: number;
  /** Made in order, before the rows are decoded. */
  readonly changes: Int32Array;
  readonly rows: Int32Array;
  /** The number of the LoRA adapter that the rows are computed with, or that is given; 0 for none. */
  readonly adapter: number;
  readonly scale: number;
  /** How the residual stream is sent; each stage sends it as it was received. */
  readonly dtype: StageDtype;
  /** Empty before the first stage, and without rows. */
  readonly hidden: Float32Array;
}

/** All rows were decoded, or none, for want of cells. */
export const STAGE_OK = 0;
export const STAGE_FULL = 1;
/** The epoch has ended, since a stage is lost. */
const STAGE_LOST = 2;
/** The numbers are no rows, but bytes of an adapter's file, for all stages. */
export const STAGE_GIVES = 3;
/** A stage cannot use the adapter, and none keeps the rows. */
export const STAGE_UNFIT = 4;
/** Asks one stage for a part of its cache: in place of a row the sequence's index and the first byte. */
export const STAGE_SAVES = 5;
/** The answer, which gives another stage the part, with the number of sequences that follow. */
export const STAGE_TAKES = 6;

export function endsEpoch({ status }: StageFrame): boolean {
  return status === STAGE_LOST;
}

/** The numbers of a change of the caches. */
export const CHANGE_NUMBERS = 4;
/** In place of the sequence that gets cells: they are taken away. */
export const REMOVES = -1;

export const ROW_NUMBERS = 3;

export const MAX_CHANGES = 4_096;
const MAX_ROWS = 8_192;
/** The most bytes of all rows of the residual stream: 512 rows of 32,768 numbers. */
const MAX_HIDDEN_BYTES = 64 * 2 ** 20;

export const HEADER_BYTES = 48;
const HEADER_NUMBERS = HEADER_BYTES / 4;
const F32_BYTES = 4;
const BF16_BYTES = 2;
/** The version of this layout. All stages of a model have the same. */
const FRAME_VERSION = 5;
/** What all stages of a model must have in common, whatever the model. */
export const STAGE_BUILD = `${LIBRARY_RELEASE}/${FRAME_VERSION}`;
/** "HSF" and the version. */
const MAGIC = 0x465348 + FRAME_VERSION * 2 ** 24;

/** The length of a frame that begins with these bytes. Throws `invalid_value` for a malformed one. */
export function frameBytes(header: Uint8Array): number {
  const numbers = new DataView(header.buffer, header.byteOffset, HEADER_BYTES);
  const at = (index: number) => numbers.getUint32(index * 4, true);
  if (at(1) !== MAGIC) throw broken("its magic is another one");
  const [changes, rows, rowLength, numberBytes] = [at(5), at(6), at(7), at(9)];
  if (changes > MAX_CHANGES) throw broken(`it has ${changes} changes`);
  if (rows > MAX_ROWS || rows * rowLength * F32_BYTES > MAX_HIDDEN_BYTES) {
    throw broken(`it has ${rows} rows of ${rowLength} numbers`);
  }
  if (numberBytes !== F32_BYTES && numberBytes !== BF16_BYTES) {
    throw broken(`its numbers have ${numberBytes} bytes`);
  }
  const fixed = 4 * (changes * CHANGE_NUMBERS + rows * ROW_NUMBERS);
  const bytes = HEADER_BYTES + fixed + filledUp(rows * rowLength * numberBytes);
  if (at(0) + 4 !== bytes) throw broken(`it says that it has ${at(0) + 4} bytes, not ${bytes}`);
  return bytes;
}

/** The epoch of a frame with this header. */
export function frameEpoch(header: Uint8Array): number {
  return new DataView(header.buffer, header.byteOffset, HEADER_BYTES).getUint32(8, true);
}

/** What the stages computed of a frame with this header. */
export function frameMicros(header: Uint8Array): number {
  return new DataView(header.buffer, header.byteOffset, HEADER_BYTES).getUint32(32, true);
}

/** What the last stage gets of a frame that has gone round: of an adapter's bytes the header alone. */
export function returnedFrame(frame: Uint8Array): Uint8Array {
  const { buffer, byteOffset } = frame;
  const status = new DataView(buffer, byteOffset, HEADER_BYTES).getUint32(16, true);
  if (status !== STAGE_GIVES) return frame;
  const header = Uint8Array.from(frame.subarray(0, HEADER_BYTES));
  const numbers = new Uint32Array(header.buffer);
  numbers[0] = HEADER_BYTES - 4;
  // Changes, rows and the length of a row.
  numbers.fill(0, 5, 8);
  return header;
}

/** What the last stage reads in place of an answer, where the epoch has ended. */
export function lostFrame(epoch: number): Uint8Array {
  const bytes = HEADER_BYTES - 4;
  return new Uint8Array(
    Uint32Array.of(bytes, MAGIC, epoch, 0, STAGE_LOST, 0, 0, 0, 0, F32_BYTES, 0, 0).buffer,
  );
}

/** Reads a whole frame; its parts share the memory, but for numbers that were sent as bf16. */
export function readFrame(memory: ArrayBuffer): StageFrame {
  const header = new Uint32Array(memory, 0, HEADER_NUMBERS);
  const [, , epoch = 0, step = 0, status = 0, changes = 0, rows = 0, rowLength = 0] = header;
  const [micros = 0, numberBytes = 0, adapter = 0] = header.subarray(8);
  const [scale = 0] = new Float32Array(memory, HEADER_BYTES - F32_BYTES, 1);
  const rowsAt = HEADER_BYTES + changes * CHANGE_NUMBERS * 4;
  const hiddenAt = rowsAt + rows * ROW_NUMBERS * 4;
  const count = rows * rowLength;
  const isShort = numberBytes === BF16_BYTES;
  return {
    epoch,
    step,
    status,
    micros,
    adapter,
    scale,
    dtype: isShort ? "bf16" : "f32",
    changes: new Int32Array(memory, HEADER_BYTES, changes * CHANGE_NUMBERS),
    rows: new Int32Array(memory, rowsAt, rows * ROW_NUMBERS),
    hidden: isShort
      ? fromBf16(new Uint16Array(memory, hiddenAt, count))
      : new Float32Array(memory, hiddenAt, count),
  };
}

/** The parts of a frame's bytes, to be written one after the other. */
export function frameParts({ changes, rows, hidden, dtype, ...frame }: StageFrame): Uint8Array[] {
  const count = rows.length / ROW_NUMBERS;
  const rowLength = count === 0 ? 0 : hidden.length / count;
  const numbers = changes.length / CHANGE_NUMBERS;
  const sent = dtype === "bf16" ? toBf16(hidden) : hidden;
  const bytes = HEADER_BYTES - 4 + 4 * (changes.length + rows.length) + sent.byteLength;
  const { epoch, step, status, micros, adapter, scale } = frame;
  const counts = [numbers, count, rowLength, micros, dtype === "bf16" ? BF16_BYTES : F32_BYTES];
  const header = Uint32Array.of(bytes, MAGIC, epoch, step, status, ...counts, adapter, 0);
  new Float32Array(header.buffer).set([scale], HEADER_NUMBERS - 1);
  return [header, changes, rows, sent]
    .filter(({ length }) => length > 0)
    .map(({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength));
}

/** Makes a frame's changes in a cache. */
export function makeChanges(cache: KvSequences, changes: Int32Array): void {
  for (let at = 0; at < changes.length; at += CHANGE_NUMBERS) {
    const [sequence = 0, other = 0, begin = 0, end = 0] = changes.subarray(at);
    if (other === REMOVES) cache.remove(sequence, begin, end);
    else cache.copy(other, sequence, begin, end);
  }
}

function filledUp(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

/** The upper halves of the numbers, rounded to the nearest, ties to even; filled up to 4 bytes. */
function toBf16(numbers: Float32Array): Uint16Array {
  const bits = new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length);
  const halves = new Uint16Array(filledUp(numbers.length * BF16_BYTES) / BF16_BYTES);
  for (let i = 0; i < numbers.length; i++) {
    const all = bits[i] as number;
    const upper = (all + 0x7fff + ((all >>> 16) & 1)) >>> 16;
    // Rounding could turn a NaN into a number.
    halves[i] = Number.isNaN(numbers[i]) ? 0x7fc0 : upper;
  }
  return halves;
}

function fromBf16(halves: Uint16Array): Float32Array {
  const bits = Uint32Array.from(halves, (half) => half << 16);
  return new Float32Array(bits.buffer);
}

function broken(why: string): AppError {
  return new AppError("invalid_value", `a frame between stages is broken: ${why}`);
}
