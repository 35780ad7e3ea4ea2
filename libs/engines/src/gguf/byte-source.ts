import { type GgufScalarType, type GgufValue, SCALAR_BYTES, SCALAR_TYPES } from "./gguf-format.ts";

/** What is wrong with a GGUF file, in words that follow the file's name. */
export class GgufFault extends Error {}

/** The bytes at hand end before the header does. */
export class Truncated extends GgufFault {}

/** No key, token or template comes near this. */
const MAX_STRING_BYTES = 16 * 1024 * 1024;
/** Items of all arrays together: vocabularies have some 300,000 tokens, and merges as many. */
const MAX_ARRAY_ITEMS = 8_000_000;

/** A cursor over the beginning of a GGUF file of `fileBytes` bytes; little-endian, bounded. */
export class ByteSource {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #fileBytes: number;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #itemsLeft = MAX_ARRAY_ITEMS;
  position = 0;

  constructor(bytes: Uint8Array, fileBytes: number) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#fileBytes = fileBytes;
  }

  uint32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  /** A 64-bit size as a number. */
  size(what: string): number {
    const value = this.#view.getBigUint64(this.#take(8), true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new GgufFault(`${what} is ${value}`);
    return Number(value);
  }

  count(what: string, most: number): number {
    const count = this.size(`the number of ${what}`);
    if (count > most) throw new GgufFault(`it claims ${count} ${what}; at most ${most} are read`);
    return count;
  }

  string(what: string): string {
    const length = this.size(`the length of ${what}`);
    if (length > MAX_STRING_BYTES) throw new GgufFault(`${what} is ${length} bytes long`);
    const at = this.#take(length);
    return this.#decoder.decode(this.#bytes.subarray(at, at + length));
  }

  value(key: string): GgufValue {
    const type = this.#type(key);
    if (type !== "array") return { type, value: this.#scalar(type, key) } as GgufValue;
    const items = this.#type(key);
    if (items === "array") throw new GgufFault(`${key} is an array of arrays`);
    const length = this.count(`items in ${key}`, this.#itemsLeft);
    this.#itemsLeft -= length;
    // An array that claims more than the file can hold is refused before any of it is read.
    this.#need(length * (items === "string" ? 8 : SCALAR_BYTES[items]));
    const value = [];
    for (let i = 0; i < length; i++) value.push(this.#scalar(items, key));
    return { type, items, value } as GgufValue;
  }

  #type(key: string): GgufScalarType | "array" {
    const id = this.uint32();
    const type = SCALAR_TYPES[id];
    if (type === undefined) throw new GgufFault(`${key} has the unknown type ${id}`);
    return type;
  }

  #scalar(type: GgufScalarType, key: string): number | bigint | boolean | string {
    if (type === "string") return this.string(key);
    const at = this.#take(SCALAR_BYTES[type]);
    switch (type) {
      case "uint8":
        return this.#view.getUint8(at);
      case "int8":
        return this.#view.getInt8(at);
      case "uint16":
        return this.#view.getUint16(at, true);
      case "int16":
        return this.#view.getInt16(at, true);
      case "uint32":
        return this.#view.getUint32(at, true);
      case "int32":
        return this.#view.getInt32(at, true);
      case "float32":
        return this.#view.getFloat32(at, true);
      case "float64":
        return this.#view.getFloat64(at, true);
      case "bool":
        return this.#view.getUint8(at) !== 0;
      case "uint64":
        return this.#view.getBigUint64(at, true);
      case "int64":
        return this.#view.getBigInt64(at, true);
      default:
        return type satisfies never;
    }
  }

  #take(length: number): number {
    this.#need(length);
    const at = this.position;
    this.position += length;
    return at;
  }

  #need(length: number): void {
    const end = this.position + length;
    if (end > this.#fileBytes) throw new GgufFault("its header ends past the end of the file");
    if (end > this.#bytes.length) throw new Truncated("its header is larger than 256 MiB");
  }
}
