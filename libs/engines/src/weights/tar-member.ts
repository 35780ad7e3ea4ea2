import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { PermanentFault } from "./source-fault.ts";
import type { ArchiveMember } from "./zip-member.ts";

const BLOCK_BYTES = 512;
/** A pax header or a long name; anything larger is no honest package. */
const MAX_EXTENDED_BYTES = 1024 * 1024;

/**
 * Opens one file of a gzipped tar archive (POSIX ustar with pax paths, as npm makes them). npm puts
 * every package under `package/`; `name` is without it.
 */
export async function openTarMember(archivePath: string, name: string): Promise<ArchiveMember> {
  const raw = createReadStream(archivePath);
  const gunzip = createGunzip();
  raw.once("error", (error) => gunzip.destroy(error));
  const source = new BlockReader(raw.pipe(gunzip));
  try {
    const sizeBytes = await seekMember(source, `package/${name}`);
    if (sizeBytes === undefined) throw new PermanentFault(`the package has no file ${name}`);
    return { sizeBytes, content: source.stream(sizeBytes) };
  } catch (error) {
    raw.destroy();
    gunzip.destroy();
    throw error;
  }
}

/** Reads up to the content of the member; undefined where the archive ends before. */
async function seekMember(source: BlockReader, path: string): Promise<number | undefined> {
  let longName: string | undefined;
  for (;;) {
    const header = await source.read(BLOCK_BYTES);
    if (header.length < BLOCK_BYTES || header[0] === 0) return undefined;
    const size = sizeField(header);
    const type = String.fromCharCode(header[156] ?? 0);
    if (type === "x" || type === "L") {
      if (size > MAX_EXTENDED_BYTES) throw new PermanentFault("the tar archive is damaged");
      const body = await source.read(padded(size));
      const text = body.toString("utf8", 0, size);
      longName = type === "L" ? text.replace(/\0.*$/s, "") : /\d+ path=(.*)\n/.exec(text)?.[1];
      continue;
    }
    const isFile = type === "0" || type === "\0";
    if (isFile && (longName ?? nameField(header)) === path) return size;
    longName = undefined;
    await source.skip(padded(size));
  }
}

function nameField(header: Buffer): string {
  const text = (start: number, end: number) =>
    header.toString("utf8", start, end).replace(/\0.*$/s, "");
  const isUstar = header.toString("latin1", 257, 262) === "ustar";
  const prefix = isUstar ? text(345, 500) : "";
  return prefix === "" ? text(0, 100) : `${prefix}/${text(0, 100)}`;
}

function sizeField(header: Buffer): number {
  // GNU's base-256 form marks sizes of 8 GiB and more by the top bit.
  if ((header[124] ?? 0) & 0x80) return Number(header.readBigUInt64BE(128));
  const size = Number.parseInt(header.toString("latin1", 124, 136).replace(/\0.*$/s, "").trim(), 8);
  if (Number.isNaN(size)) throw new PermanentFault("the tar archive is damaged");
  return size;
}

function padded(size: number): number {
  return Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;
}

/** Takes counted bytes from a stream. */
class BlockReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: Readable) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** Fewer bytes than asked for only at the end. */
  async read(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.#take(length)) parts.push(part);
    return Buffer.concat(parts);
  }

  async skip(length: number): Promise<void> {
    for await (const _ of this.#take(length));
  }

  stream(length: number): Readable {
    return Readable.from(this.#take(length));
  }

  async *#take(length: number): AsyncGenerator<Buffer> {
    for (let left = length; left > 0; ) {
      if (this.#rest.length === 0) {
        const next = await this.#chunks.next();
        if (next.done) return;
        this.#rest = next.value;
      }
      const part = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(part.length);
      left -= part.length;
      yield part;
    }
  }
}
