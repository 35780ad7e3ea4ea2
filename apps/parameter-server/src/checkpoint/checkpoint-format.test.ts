import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import { expect, it, test } from "vitest";
import { checkedHeader } from "./checkpoint-format.ts";

const SPEC: ShardSpec = {
  jobId: "job_a",
  attempt: 1,
  shard: 0,
  servers: ["s0:1"],
  workers: 1,
  optimizer: ADAM,
  learningRate: 1,
  consistency: { kind: "bsp" },
  compression: "none",
  parameters: [{ name: "w", shape: [2], type: "f32" }],
  jobToken: new Uint8Array(32),
};
const HEADER = {
  jobId: "job_a",
  shard: 0,
  shards: 1,
  version: 3,
  elements: 2,
  tensors: ["parameters", "first_moment", "second_moment"],
  parameters: [{ name: "w", shape: [2] }],
};
const check = (header: object) => checkedHeader(Buffer.from(JSON.stringify(header)), SPEC, 0);

test("piece: the header of the job's own is accepted", () => {
  expect(check(HEADER)).toEqual(HEADER);
});

it.each([
  [{ jobId: "job_b" }, "its job id is not that of the job that wants it"],
  [{ shard: 1 }, "its shard number is not that of the job that wants it"],
  [{ tensors: ["parameters"] }, "its list of tensors is not that of the job that wants it"],
])("piece: one with %o is refused", (changes, message) => {
  expect(() => check({ ...HEADER, ...changes })).toThrow(message);
});
