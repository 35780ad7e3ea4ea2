// holds: engine-gguf

import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seededRandom } from "@heddle/base/random";
import { rejectionOf } from "@heddle/base/testing/rejection";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { GgufFault } from "./byte-source.ts";
import type { GgufValue } from "./gguf-format.ts";
import { parseGguf, readGguf } from "./gguf-reader.ts";
import { type GgufTensor, writeGguf } from "./gguf-writer.ts";
import { encodeTensor, halfBits, type WritableTensorType } from "./tensor-encoding.ts";
import { writeTinyModel } from "./tiny-model.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-gguf-"));
});
afterAll(() => rm(folder, { recursive: true }));

const faultOf = (path: string) => rejectionOf(readGguf(path));

const float32 = fc.float({ noNaN: true }).map(Math.fround);
const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const uint64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const text = fc.string({ unit: "grapheme", maxLength: 20 });

const numbers = {
  uint8: fc.integer({ min: 0, max: 255 }),
  int8: fc.integer({ min: -128, max: 127 }),
  uint16: fc.integer({ min: 0, max: 65535 }),
  int16: fc.integer({ min: -32768, max: 32767 }),
  uint32: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  int32: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  float32,
  float64: fc.double({ noNaN: true }),
  uint64,
  int64,
  bool: fc.boolean(),
  string: text,
};

const anyValue: fc.Arbitrary<GgufValue> = fc.oneof(
  ...Object.entries(numbers).flatMap(([type, value]) => [
    value.map((v) => ({ type, value: v }) as GgufValue),
    fc
      .array(value as fc.Arbitrary<unknown>, { maxLength: 10 })
      .map((v) => ({ type: "array", items: type, value: v }) as GgufValue),
  ]),
);

interface Plan {
  readonly name: string;
  readonly type: WritableTensorType;
  readonly shape: readonly number[];
}

const anyPlan: fc.Arbitrary<Plan> = fc.record({
  name: fc.string({ unit: "grapheme-ascii", minLength: 1, maxLength: 12 }),
  type: fc.constantFrom("F32", "F16", "Q8_0"),
  shape: fc
    .tuple(
      fc.integer({ min: 1, max: 3 }),
      fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 3 }),
    )
    .map(([blocks, rest]) => [blocks * 32, ...rest]),
});

function valuesOf(plan: Plan, seed: number): Float32Array {
  const random = seededRandom(seed);
  const length = plan.shape.reduce((product, size) => product * size, 1);
  return Float32Array.from({ length }, () => random() * 2 - 1);
}

/** Gives the values in pieces of 32, so that the streaming is exercised. */
function tensorOf(plan: Plan, values: Float32Array): GgufTensor {
  return {
    ...plan,
    async *values() {
      for (let at = 0; at < values.length; at += 32) yield values.subarray(at, at + 32);
    },
  };
}

describe("the GGUF writer and reader", () => {
  it("give back every metadata type, and every tensor's bytes where the directory says", async () => {
    const path = join(folder, "round-trip.gguf");
    await fc.assert(
      fc.asyncProperty(
        fc.dictionary(text, anyValue, { maxKeys: 8, noNullPrototype: true }),
        fc.uniqueArray(anyPlan, { maxLength: 4, selector: (plan) => plan.name }),
        fc.constantFrom(undefined, 8, 32, 64, 4096),
        async (entries, plans, alignment) => {
          const metadata = new Map(Object.entries(entries));
          metadata.delete("general.alignment");
          if (alignment) metadata.set("general.alignment", { type: "uint32", value: alignment });
          const values = plans.map((plan, i) => valuesOf(plan, i));
          const tensors = plans.map((plan, i) => tensorOf(plan, values[i] as Float32Array));
          await writeGguf(path, { metadata, tensors });

          const read = await readGguf(path);
          const bytes = await readFile(path);
          expect(read.version).toBe(3);
          expect(read.sizeBytes).toBe(bytes.length);
          expect([...read.metadata]).toEqual([...metadata]);
          expect(read.tensors.map(({ name, shape, type }) => ({ name, shape, type }))).toEqual(
            plans.map(({ name, shape, type }) => ({ name, shape, type })),
          );
          read.tensors.forEach((tensor, i) => {
            expect(tensor.offset % (alignment ?? 32)).toBe(0);
            const plan = plans[i] as Plan;
            const expected = encodeTensor(plan.type, values[i] as Float32Array);
            const end = tensor.offset + (tensor.sizeBytes ?? 0);
            expect(Buffer.compare(bytes.subarray(tensor.offset, end), expected)).toBe(0);
          });
        },
      ),
      { numRuns: 60 },
    );
  });

  it("leave no file where the tensors' values do not fit their shape", async () => {
    const path = join(folder, "wrong.gguf");
    const tensor: GgufTensor = {
      name: "w",
      shape: [4],
      type: "F32",
      values: () => [new Float32Array(3)],
    };
    await expect(writeGguf(path, { metadata: new Map(), tensors: [tensor] })).rejects.toThrow(
      "w gave 3 values, its shape needs 4",
    );
    expect((await readdir(folder)).filter((name) => name.startsWith("wrong"))).toEqual([]);
  });
});

describe("the GGUF reader", () => {
  it("says which file cannot be opened", async () => {
    const error = await faultOf(join(folder, "absent.gguf"));
    expect(error.code).toBe("not_found");
    expect(error.message).toContain("absent.gguf");
  });

  it("refuses what is no GGUF, is too old, is big-endian or is cut off, and says so", async () => {
    const whole = join(folder, "whole.gguf");
    await writeTinyModel(whole);
    const bytes = await readFile(whole);
    const edited = (at: number, value: readonly number[]) => {
      const copy = Buffer.from(bytes);
      copy.set(value, at);
      return copy;
    };
    const cases: [Buffer, string][] = [
      [Buffer.from("<html>not found</html>"), "does not begin with GGUF"],
      [Buffer.alloc(0), "ends past the end of the file"],
      [edited(4, [1]), "version 1"],
      [edited(4, [0, 0, 0, 3]), "big-endian"],
      [edited(8, [255, 255, 255, 255]), "4294967295 tensors"],
      [edited(8, Array(8).fill(255)), "the number of tensors is 18446744073709551615"],
      [edited(16, [255, 255, 255]), "16777215 metadata entries"],
      [edited(24, [0, 0, 0, 255]), "the length of a metadata key"],
      [bytes.subarray(0, bytes.length - 4000), "the file is cut off"],
      [bytes.subarray(0, 500), "ends past the end of the file"],
    ];
    for (const [content, message] of cases) {
      const path = join(folder, "bad.gguf");
      await writeFile(path, content);
      const error = await faultOf(path);
      if (message.startsWith("the length of a"))
        expect(error.message).toMatch(/metadata key is \d+ bytes long/);
      else expect(error.message).toContain(message);
      expect([error.code, error.param]).toEqual(["invalid_value", "weights"]);
    }
  });

  it("fails on damaged headers only with a GgufFault, and never reads far", async () => {
    const path = join(folder, "fuzz.gguf");
    await writeTinyModel(path);
    const bytes = await readFile(path);
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat({ max: 9000 }), fc.nat({ max: 255 })), {
          minLength: 1,
          maxLength: 6,
        }),
        (edits) => {
          const copy = Buffer.from(bytes);
          for (const [at, value] of edits) copy[at] = value;
          try {
            parseGguf(copy, copy.length);
          } catch (error) {
            expect(error).toBeInstanceOf(GgufFault);
          }
        },
      ),
      { numRuns: 1500 },
    );
  });

  it("refuses names that occur twice, and arrays larger than a vocabulary or the file", () => {
    const header = (tail: Buffer, tensors: bigint, entries: bigint) => {
      const head = Buffer.alloc(24);
      head.write("GGUF");
      head.writeUInt32LE(3, 4);
      head.writeBigUInt64LE(tensors, 8);
      head.writeBigUInt64LE(entries, 16);
      return Buffer.concat([head, tail, Buffer.alloc(64)]);
    };
    const name = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 0x61]);
    const bool = Buffer.concat([name, Buffer.from([7, 0, 0, 0, 1])]);
    const scalar = Buffer.concat([name, Buffer.alloc(4), Buffer.alloc(4), Buffer.alloc(8)]);
    const twice = (part: Buffer) => Buffer.concat([part, part]);
    const entries = header(twice(bool), 0n, 2n);
    expect(() => parseGguf(entries, entries.length)).toThrow("the metadata key a occurs twice");
    const array = (items: number) => {
      const head = Buffer.alloc(16);
      head.writeUInt32LE(9, 0);
      head.writeUInt32LE(0, 4);
      head.writeBigUInt64LE(BigInt(items), 8);
      return Buffer.concat([name, head]);
    };
    const large = header(array(8_000_001), 0n, 1n);
    expect(() => parseGguf(large, 2 ** 40)).toThrow("8000001 items in a; at most 8000000");
    const longer = header(array(7_000_000), 0n, 1n);
    expect(() => parseGguf(longer, longer.length)).toThrow("ends past the end of the file");
    const tensors = header(twice(scalar), 2n, 0n);
    expect(() => parseGguf(tensors, tensors.length)).toThrow("two tensors are named a");
  });
});

describe("the tensor encodings", () => {
  it("round to the nearest half, ties to even, over all halves and their midpoints", () => {
    const value = (bits: number) => {
      const exponent = (bits >> 10) & 31;
      const fraction = bits & 1023;
      return exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
    };
    for (let bits = 0; bits < 0x7c00; bits++) {
      const here = value(bits);
      const middle = (here + value(bits + 1)) / 2;
      const even = bits % 2 === 0 ? bits : bits + 1;
      const ok =
        halfBits(here) === bits &&
        halfBits(-here) === (bits | 0x8000) &&
        halfBits(middle) === even &&
        halfBits(middle * (1 + 2 ** -40)) === bits + 1 &&
        halfBits(middle * (1 - 2 ** -40)) === bits;
      if (!ok) expect.fail(`half ${bits.toString(16)} (${here}) is rounded wrongly`);
    }
    expect([Number.POSITIVE_INFINITY, -1e9, Number.NaN, -0].map(halfBits)).toEqual([
      0x7c00, 0xfc00, 0x7e00, 0x8000,
    ]);
  });

  it("quantize to Q8_0 within half a step of the block's scale", () => {
    const random = seededRandom(7);
    const values = Float32Array.from({ length: 640 }, () => random() * 6 - 3);
    const bytes = encodeTensor("Q8_0", values);
    expect(bytes.length).toBe(20 * 34);
    const view = new DataView(bytes.buffer);
    values.forEach((value, i) => {
      const block = Math.floor(i / 32);
      const largest = values
        .subarray(block * 32, block * 32 + 32)
        .reduce((most, v) => Math.max(most, Math.abs(v)), 0);
      const step = largest / 127;
      const stored = view.getInt8(block * 34 + 2 + (i % 32)) * step;
      expect(Math.abs(stored - value)).toBeLessThanOrEqual(step / 2 + 1e-6);
    });
    expect([...encodeTensor("Q8_0", new Float32Array(32))]).toEqual(Array(34).fill(0));
  });
});

describe("the tiny model", () => {
  const digest = async (path: string) =>
    createHash("sha256")
      .update(await readFile(path))
      .digest("hex");

  it("is the same file, to the byte, for the same seed", async () => {
    const path = join(folder, "tiny.gguf");
    await writeTinyModel(path);
    expect(await digest(path)).toBe(
      "b01db048b87f14a1679c79e38217e62acef537452f139e8c1567ad0ce7de3a07",
    );
    const other = join(folder, "other.gguf");
    await writeTinyModel(other, { seed: 2, contextTokens: 8192 });
    expect(await digest(other)).not.toBe(await digest(path));
    expect((await readGguf(other)).metadata.get("llama.context_length")).toEqual({
      type: "uint32",
      value: 8192,
    });
  });

  it("has a token for every byte, and merges whose parts and results are tokens", async () => {
    const path = join(folder, "vocabulary.gguf");
    await writeTinyModel(path);
    const { metadata, tensors } = await readGguf(path);
    const list = (key: string) => metadata.get(key)?.value as readonly string[];
    const tokens = list("tokenizer.ggml.tokens");
    expect(new Set(tokens).size).toBe(tokens.length);
    expect(tokens.length % 32).toBe(0);
    expect(list("tokenizer.ggml.token_type").length).toBe(tokens.length);
    for (const merge of list("tokenizer.ggml.merges")) {
      const [first, second] = merge.split(" ");
      expect(tokens).toContain(first);
      expect(tokens).toContain(second);
      expect(tokens).toContain(`${first}${second}`);
    }
    expect(tensors.find(({ name }) => name === "token_embd.weight")?.shape).toEqual([
      96,
      tokens.length,
    ]);
  });
});
