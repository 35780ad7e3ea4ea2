import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { GgufFault, Truncated } from "../../gguf/byte-source.ts";
import { type GgufFile, MAX_HEADER_BYTES, parseGguf } from "../../gguf/gguf-reader.ts";

/** Consecutive bytes of a model's file with their digest: its header, or one tensor. */
export interface IndexedPiece {
  /** From the start of the file. */
  readonly offset: number;
  readonly bytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
}

/**
 * What the parts of a model's file are. Its own digest names the content: with the index, each part
 * is verified without the rest of the file.
 */
export interface TensorIndex {
  /** The size of the whole file. */
  readonly sizeBytes: number;
  /** The header, then the tensors in the order of the file; they do not overlap. */
  readonly pieces: readonly IndexedPiece[];
}

/** What a pass over a whole file gives. */
export interface IndexedFile {
  readonly index: TensorIndex;
  /** The hash of the whole file. */
  readonly sha256: string;
  readonly header: Uint8Array;
}

const VERSION = 1;
/** The most bytes of the text: some 100 for each of the 65,536 tensors that a file may have. */
export const MAX_INDEX_BYTES = 8 * 2 ** 20;
/** A header is parsed when this much of it is there, then at each multiple of four. */
const FIRST_PARSE_BYTES = 64 * 2 ** 10;

/** The index as text: the same for the same file. */
export function encodeIndex({ sizeBytes, pieces }: TensorIndex): string {
  const rows = pieces.map(({ offset, bytes, sha256 }) => [offset, bytes, sha256]);
  return JSON.stringify({ version: VERSION, sizeBytes, pieces: rows });
}

/** The digest of an index's text, which names it. */
export function indexDigest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Parses an index that may come from another machine. Throws `invalid_value` for an invalid one. */
export function decodeIndex(text: string): TensorIndex {
  try {
    const { version, sizeBytes, pieces } = JSON.parse(text) as Partial<Record<string, unknown>>;
    if (version !== VERSION) throw new Error(`its version is ${version}`);
    if (!isSize(sizeBytes) || !Array.isArray(pieces)) throw new Error("a part is missing");
    const read = pieces.map((row: unknown) => pieceOf(row));
    const fault = orderFault(read, sizeBytes);
    if (fault) throw new Error(fault);
    return { sizeBytes, pieces: read };
  } catch (cause) {
    const message = `this is no index of a model's tensors: ${(cause as Error).message}`;
    throw new AppError("invalid_value", message, { cause });
  }
}

function pieceOf(row: unknown): IndexedPiece {
  const [offset, bytes, sha256] = Array.isArray(row) ? (row as unknown[]) : [];
  const isDigest = typeof sha256 === "string" && /^[\da-f]{64}$/.test(sha256);
  if (!isSize(offset) || !isSize(bytes) || !isDigest) throw new Error("a piece is damaged");
  return { offset, bytes, sha256 };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function orderFault(
  pieces: readonly Pick<IndexedPiece, "offset" | "bytes">[],
  sizeBytes: number,
): string | undefined {
  let end = 0;
  for (const { offset, bytes } of pieces) {
    if (offset < end) return `two of its tensors have the same bytes, at ${offset}`;
    end = offset + bytes;
  }
  if (pieces[0]?.offset !== 0) return "it has no header";
  return end > sizeBytes ? "it ends past the end of the file" : undefined;
}

/** The pieces of a file, without their digests. */
function placesOf(file: GgufFile): Pick<IndexedPiece, "offset" | "bytes">[] {
  const tensors = file.tensors.map(({ name, offset, sizeBytes }) => {
    if (sizeBytes === undefined) throw new GgufFault(`the type of ${name} is not known`);
    return { offset, bytes: sizeBytes };
  });
  const sorted = tensors.toSorted((a, b) => a.offset - b.offset);
  const headerBytes = sorted[0]?.offset ?? file.sizeBytes;
  if (headerBytes > MAX_HEADER_BYTES) {
    throw new GgufFault(`its header is larger than ${MAX_HEADER_BYTES} bytes`);
  }
  const pieces = [{ offset: 0, bytes: headerBytes }, ...sorted];
  const fault = orderFault(pieces, file.sizeBytes);
  if (fault) throw new GgufFault(fault);
  return pieces;
}

/** Computes one SHA-256 after the other. */
export interface Hasher {
  begin(): void;
  update(bytes: Uint8Array): void;
  /** Lower-case hexadecimal. */
  end(): string;
  /** What `load` continues from; undefined where that cannot be kept. */
  save(): string | undefined;
  load(state: string): void;
}

export interface PassHashers {
  readonly whole: Hasher;
  readonly piece: Hasher;
}

/** The progress of a pass, as it is kept on disk. */
export interface PassState {
  readonly at: number;
  readonly headerBytes: number;
  readonly whole: string;
  /** Absent between two pieces. */
  readonly piece?: string | undefined;
  /** The hashes of the pieces that have passed. */
  readonly sha256: readonly string[];
}

function nodeHasher(): Hasher {
  let hash = createHash("sha256");
  return {
    begin: () => {
      hash = createHash("sha256");
    },
    update: (bytes) => {
      hash.update(bytes);
    },
    end: () => hash.digest("hex"),
    save: () => undefined,
    load: () => {},
  };
}

/**
 * Hashes a whole file and each of its pieces while its bytes pass: it is verified in one read, without
 * a copy. `end` throws where the file is cut off or not GGUF.
 */
export class IndexPass {
  readonly #sizeBytes: number;
  readonly #hashers: PassHashers;
  #sha256: string[] = [];
  #header = new Uint8Array(0);
  #headerBytes = 0;
  #parseAt = FIRST_PARSE_BYTES;
  #places: Pick<IndexedPiece, "offset" | "bytes">[] | undefined;
  #isInPiece = false;
  #at = 0;

  constructor(
    sizeBytes: number,
    hashers: PassHashers = { whole: nodeHasher(), piece: nodeHasher() },
  ) {
    this.#sizeBytes = sizeBytes;
    this.#hashers = hashers;
    hashers.whole.begin();
  }

  /** Continues another pass, with the header again; false where that is another one. */
  resume(state: PassState, header: Uint8Array): boolean {
    const digest = createHash("sha256").update(header).digest("hex");
    if (digest !== state.sha256[0]) return false;
    this.#header = Uint8Array.from(header);
    this.#headerBytes = header.length;
    this.#places = placesOf(parseGguf(header, this.#sizeBytes));
    this.#sha256 = [...state.sha256];
    this.#at = state.at;
    this.#hashers.whole.load(state.whole);
    this.#isInPiece = state.piece !== undefined;
    if (state.piece !== undefined) this.#hashers.piece.load(state.piece);
    return true;
  }

  /** What another pass continues from; undefined in the header, or where it cannot be kept. */
  state(): PassState | undefined {
    const headerBytes = this.#places?.[0]?.bytes;
    const whole = this.#hashers.whole.save();
    if (headerBytes === undefined || this.#sha256.length === 0 || whole === undefined)
      return undefined;
    const piece = this.#isInPiece ? this.#hashers.piece.save() : undefined;
    return { at: this.#at, headerBytes, whole, piece, sha256: this.#sha256 };
  }

  /** Bytes that have passed. */
  get position(): number {
    return this.#at;
  }

  /** Throws a GgufFault. */
  push(bytes: Uint8Array): void {
    this.#hashers.whole.update(bytes);
    if (this.#places) {
      this.#digest(bytes, this.#at);
      this.#at += bytes.length;
      return;
    }
    this.#keep(bytes);
    this.#at += bytes.length;
    if (this.#at >= Math.min(this.#parseAt, this.#sizeBytes)) this.#parse();
  }

  /** Throws a GgufFault. */
  end(): IndexedFile {
    if (this.#at !== this.#sizeBytes) {
      throw new GgufFault(`it ended at byte ${this.#at} of ${this.#sizeBytes}`);
    }
    if (!this.#places) this.#parse();
    const places = this.#places ?? [];
    const pieces = places.map((place, i) => ({ ...place, sha256: this.#sha256[i] ?? EMPTY }));
    return {
      index: { sizeBytes: this.#sizeBytes, pieces },
      sha256: this.#hashers.whole.end(),
      header: this.#header.subarray(0, places[0]?.bytes),
    };
  }

  #keep(bytes: Uint8Array): void {
    if (this.#at + bytes.length > this.#header.length) {
      const grown = new Uint8Array(Math.max(2 * this.#header.length, this.#at + bytes.length));
      grown.set(this.#header);
      this.#header = grown;
    }
    this.#header.set(bytes, this.#at);
    this.#headerBytes = this.#at + bytes.length;
  }

  #parse(): void {
    const known = this.#header.subarray(0, this.#headerBytes);
    try {
      const places = placesOf(parseGguf(known, this.#sizeBytes));
      // The rest of a header is padding, which may be large.
      this.#parseAt = places[0]!.bytes;
      if (this.#parseAt > known.length) return;
      this.#places = places;
    } catch (error) {
      const isShort = error instanceof Truncated && this.#at < this.#sizeBytes;
      if (!isShort || this.#at >= MAX_HEADER_BYTES) throw error;
      this.#parseAt *= 4;
      return;
    }
    this.#digest(known, 0);
  }

  /** Takes bytes from `at` on into the digests of the pieces that they belong to. */
  #digest(bytes: Uint8Array, at: number): void {
    const end = at + bytes.length;
    for (;;) {
      const place = this.#places![this.#sha256.length];
      if (!place || place.offset > end) return;
      if (!this.#isInPiece) this.#hashers.piece.begin();
      this.#isInPiece = true;
      const from = Math.max(0, place.offset - at);
      const placeEnd = place.offset + place.bytes;
      this.#hashers.piece.update(bytes.subarray(from, Math.min(bytes.length, placeEnd - at)));
      if (placeEnd > end) return;
      this.#sha256.push(this.#hashers.piece.end());
      this.#isInPiece = false;
    }
  }
}

/** The hash of no bytes. */
const EMPTY = createHash("sha256").digest("hex");
