import type { OpenShard__Output } from "@heddle/contracts/generated/heddle/v1/OpenShard";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import { expect, test } from "vitest";
import { decodeShard, encodeShard, type ShardSetSpec } from "./shard-spec.ts";

const SPEC: ShardSetSpec = {
  jobId: "job_1",
  attempt: 3,
  parameters: [{ name: "w", shape: [2, 3], type: "f32" }],
  servers: ["a:1", "b:1"],
  fragments: 1,
  workers: 4,
  optimizer: { kind: "sgd", momentum: 0.9, nesterov: true },
  learningRate: 0.1,
  maxGradientNorm: 2,
  consistency: { kind: "bsp" },
  stragglerMs: 50,
  compression: "int8",
  pullCompression: "int8",
  jobToken: new Uint8Array(32).fill(5),
};

/** The message as it arrives, where an optimizer's absent fields are zeros. */
function sent(change: Partial<ShardSetSpec> = {}, shard = 1): OpenShard__Output {
  const message = encodeShard({ ...SPEC, ...change }, shard);
  const zeros = { momentum: 0, nesterov: false, beta1: 0, beta2: 0, epsilon: 0, weightDecay: 0 };
  const optimizer = { ...zeros, ...message.optimizer };
  return { ...message, optimizer } as unknown as OpenShard__Output;
}

/** The message with some values replaced. */
const with_ = (change: object) => ({ ...sent(), ...change }) as OpenShard__Output;
const optimizer = (change: object) =>
  with_({ optimizer: { ...sent({ optimizer: { ...ADAM, kind: "adamw" } }).optimizer, ...change } });

test("shard: its spec survives the wire unchanged", () => {
  expect(decodeShard(sent())).toEqual({ ...SPEC, shard: 1 });
  const other: Partial<ShardSetSpec> = {
    optimizer: { ...ADAM, kind: "adamw", weightDecay: 0.1 },
    consistency: { kind: "ssp", staleness: 3 },
    pullCompression: "none",
    maxGradientNorm: undefined,
    stragglerMs: undefined,
  };
  expect(decodeShard(sent(other))).toEqual({ ...SPEC, ...other, shard: 1 });
  expect(
    decodeShard(sent({ consistency: { kind: "asp" }, pullCompression: "none" })),
  ).toMatchObject({
    consistency: { kind: "asp" },
  });
});

test("shard: defaults for earlier versions are one fragment, uncompressed pulls", () => {
  const before = with_({
    fragments: 0,
    consistency: { ...sent().consistency, pullCompression: "" },
  });
  expect(decodeShard(before)).toMatchObject({ fragments: 1, pullCompression: "none" });
});

test.each([
  ["no message", null, /needs an id/],
  ["no id", with_({ id: null }), /needs an id/],
  [
    "a job that is no name",
    with_({ id: { jobId: "../x", attempt: 1, shard: 0 } }),
    /is not a valid id/,
  ],
  ["a shard beyond the last", sent({}, 2), /shard 2 of 2/],
  [
    "no shards",
    with_({ shards: 0, servers: [], id: { jobId: "j", attempt: 1, shard: 0 } }),
    /of 0/,
  ],
  ["fewer servers than shards", with_({ servers: ["a:1"] }), /with 1 servers/],
  ["shards that fragments do not share", with_({ fragments: 3 }), /2 shards of 3 fragments/],
  ["no workers", sent({ workers: 0 }), /workers is 0/],
  ["too many workers", sent({ workers: 4097 }), /workers is 4097/],
  ["a short token", sent({ jobToken: new Uint8Array(31) }), /needs 32 bytes/],
  ["no learning rate", sent({ learningRate: 0 }), /learning_rate/],
  ["an infinite learning rate", sent({ learningRate: Number.POSITIVE_INFINITY }), /learning_rate/],
  ["a negative norm", sent({ maxGradientNorm: -1 }), /max_gradient_norm/],
  ["an invalid norm", sent({ maxGradientNorm: Number.NaN }), /max_gradient_norm/],
  ["a norm over fragments", sent({ fragments: 2 }), /norm of fragments/],
  ["no tensors", with_({ parameters: [] }), /0 tensors/],
  [
    "one name twice",
    with_({ parameters: [1, 2].map(() => ({ name: "w", shape: [1] })) }),
    /one name/,
  ],
  ["an unknown optimizer", optimizer({ kind: "lion" }), /no optimizer "lion"/],
  ["an unknown consistency", with_({ consistency: { model: "none" } }), /no consistency model/],
  [
    "an unknown compression",
    with_({ consistency: { ...sent().consistency, compression: "zip" } }),
    /zip/,
  ],
  ["changes for those who skip versions", sent({ consistency: { kind: "asp" } }), /not asp/],
] as const)("shard: refused with the reason: %s", (_, message, why) => {
  expect(() => decodeShard(message as OpenShard__Output | null)).toThrow(why);
});

test.each([
  ["beta1", -0.1, 0, 0.99, 1],
  ["beta2", -0.1, 0, 0.99, 1],
  ["epsilon", 0, 1e-30, 1, Number.POSITIVE_INFINITY],
  ["weight_decay", -1e-9, 0, 5, Number.POSITIVE_INFINITY],
] as const)(
  "shard: %s within its bounds is accepted, and beyond them refused",
  (name, below, ...rest) => {
    const field = name === "weight_decay" ? "weightDecay" : name;
    const [least, most, above] = rest;
    for (const value of [least, most]) {
      expect(decodeShard(optimizer({ [field]: value })).optimizer).toMatchObject({
        [field]: value,
      });
    }
    for (const value of [below, above]) {
      expect(() => decodeShard(optimizer({ [field]: value }))).toThrow(`optimizer.${name} is`);
    }
  },
);

test("shard: momentum is 0 to 1", () => {
  const sgd = (momentum: number) =>
    decodeShard(sent({ optimizer: { kind: "sgd", momentum, nesterov: false } })).optimizer;
  for (const momentum of [0, 1]) expect(sgd(momentum)).toMatchObject({ momentum });
  for (const momentum of [-0.1, 1.1]) expect(() => sgd(momentum)).toThrow(/optimizer.momentum/);
});

test("shard: the most workers and shards that are accepted", () => {
  expect(decodeShard(sent({ workers: 4096 })).workers).toBe(4096);
  const servers = Array.from({ length: 1024 }, () => "a:1");
  expect(decodeShard(sent({ servers }, 1023)).shard).toBe(1023);
  expect(() => decodeShard(sent({ servers: [...servers, "a:1"] }, 0))).toThrow(/1025 shards/);
});
