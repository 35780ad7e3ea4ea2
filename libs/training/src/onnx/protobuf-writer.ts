const utf8 = new TextEncoder();

/**
 * Writes one protobuf message, field by field, in the wire format of
 * https://protobuf.dev/programming-guides/encoding/. Messages nest by `message`.
 */
export class ProtobufWriter {
  #bytes = new Uint8Array(256);
  #length = 0;

  /** An integer field; negative numbers take ten bytes, as int64 has it. */
  integer(field: number, value: number | bigint): this {
    this.#varint(BigInt(field << 3));
    return this.#varint(BigInt.asUintN(64, BigInt(value)));
  }

  float(field: number, value: number): this {
    this.#varint(BigInt((field << 3) | 5));
    return this.#append(new Uint8Array(new Float32Array([value]).buffer));
  }

  text(field: number, value: string): this {
    return this.bytes(field, utf8.encode(value));
  }

  bytes(field: number, value: Uint8Array): this {
    this.#varint(BigInt((field << 3) | 2));
    this.#varint(BigInt(value.length));
    return this.#append(value);
  }

  message(field: number, value: ProtobufWriter): this {
    return this.bytes(field, value.finish());
  }

  /** The message's bytes so far; valid until the next field is written. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  #varint(value: bigint): this {
    let rest = value;
    while (rest > 127n) {
      this.#byte(Number(rest & 127n) | 128);
      rest >>= 7n;
    }
    this.#byte(Number(rest));
    return this;
  }

  #byte(value: number): void {
    this.#reserve(1);
    this.#bytes[this.#length++] = value;
  }

  #append(value: Uint8Array): this {
    this.#reserve(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
    return this;
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
  }
}
