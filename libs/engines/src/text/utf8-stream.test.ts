import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Utf8Stream } from "./utf8-stream.ts";

const bytesOf = (text: string) => new TextEncoder().encode(text);

/** Splits `bytes` at the given positions and decodes the pieces one by one. */
function decodeInPieces(bytes: Uint8Array, cuts: readonly number[]): string[] {
  const stream = new Utf8Stream();
  const edges = [0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort(
    (a, b) => a - b,
  );
  const pieces = edges.slice(1).map((end, i) => stream.push(bytes.subarray(edges[i], end)));
  return [...pieces, stream.flush()];
}

describe("Utf8Stream", () => {
  it("holds a character back until its last byte", () => {
    const stream = new Utf8Stream();
    const euro = bytesOf("€");
    expect(stream.push(euro.subarray(0, 1))).toBe("");
    expect(stream.push(euro.subarray(1, 2))).toBe("");
    expect(stream.push(euro.subarray(2))).toBe("€");
    expect(stream.flush()).toBe("");
  });

  it("never gives half of a surrogate pair", () => {
    const pieces = decodeInPieces(bytesOf("a😀b"), [1, 2, 3, 4, 5]);
    expect(pieces.filter((piece) => piece !== "")).toEqual(["a", "😀", "b"]);
  });

  it("gives U+FFFD for an incomplete tail, once, and then starts again", () => {
    const stream = new Utf8Stream();
    expect(stream.push(Uint8Array.of(0x61, 0xf0, 0x9f))).toBe("a");
    expect(stream.flush()).toBe("\ufffd");
    expect(stream.flush()).toBe("");
    expect(stream.push(bytesOf("ok"))).toBe("ok");
  });

  it("takes whole characters as text: an unfinished one before them is replaced", () => {
    const stream = new Utf8Stream();
    expect(stream.pushWhole("é")).toBe("é");
    expect(stream.push(Uint8Array.of(0xf0, 0x9f))).toBe("");
    expect(stream.pushWhole("")).toBe("");
    expect(stream.pushWhole("ok")).toBe("\ufffdok");
    expect(stream.push(bytesOf("€").subarray(0, 2))).toBe("");
    expect(stream.push(bytesOf("€").subarray(2))).toBe("€");
    expect(stream.pushWhole("a")).toBe("a");
    expect(stream.flush()).toBe("");
  });

  it("keeps a byte order mark", () => {
    expect(new Utf8Stream().push(bytesOf("\ufeffx"))).toBe("\ufeffx");
  });

  it("replaces maximal subparts as the WHATWG decoder does", () => {
    const stream = new Utf8Stream();
    const text = stream.push(Uint8Array.of(0xe2, 0x82, 0x41, 0xc0, 0xaf, 0xff, 0x80, 0xed, 0xa0));
    expect(text + stream.flush()).toBe("\ufffdA\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  });

  it("gives the same text for every cutting of the same bytes, valid or not", () => {
    const anyBytes = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc.string({ unit: "binary", maxLength: 20 }).map(bytesOf),
      fc
        .array(fc.constantFrom(0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xff, 0x41), {
          maxLength: 30,
        })
        .map((list) => Uint8Array.from(list)),
    );
    fc.assert(
      fc.property(anyBytes, fc.array(fc.nat(), { maxLength: 12 }), (bytes, cuts) => {
        const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
        expect(decodeInPieces(bytes, cuts).join("")).toBe(whole);
      }),
      { numRuns: 2000 },
    );
  });
});
