import {
  CHAT_TEMPLATE_ORIGINS,
  DETERMINISTIC_MODES,
  type DeploymentSpec,
  KV_DTYPES,
  type ReplicaStatus,
} from "@heddle/contracts/engine";
import { SPLIT_MODES, STAGE_DTYPES } from "@heddle/contracts/models/model-division";
import { UPSTREAM_DIALECTS, UPSTREAM_PROBES } from "@heddle/contracts/models/upstream-spec";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  decodeDeployment,
  decodeReplica,
  emptyLoad,
  encodeDeployment,
  encodeReplica,
} from "./node-codec.ts";
import { attachMethod, loadMethod } from "./proto.ts";

const uint32 = fc.integer({ min: 0, max: 2 ** 32 - 1 });
const uint53 = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const optional = <T>(key: string, value: fc.Arbitrary<T>) =>
  fc.option(value, { nil: undefined }).map((v) => (v === undefined ? {} : { [key]: v }));
const merged = (...parts: fc.Arbitrary<object>[]) =>
  fc.tuple(...parts).map((values) => Object.assign({}, ...values));

const load = fc.record({
  running: uint32,
  waiting: uint32,
  maxSequences: uint32,
  maxQueued: uint32,
  kvUsedTokens: uint53,
  kvTokens: uint53,
  promptTokens: uint53,
  cachedTokens: uint53,
  generatedTokens: uint53,
  draftTokens: uint53,
  acceptedTokens: uint53,
  residentBytes: uint53,
  restarts: uint32,
});
const info = merged(
  fc.record({
    engine: fc.string(),
    device: fc.string(),
    contextTokens: uint32,
    vocabularySize: uint32,
    parameters: uint53,
    fileType: fc.string(),
  }),
  optional("ranks", fc.constant(true)),
  optional("reasoning", fc.constantFrom("tagged", "open")),
  optional("chatTemplate", fc.constantFrom(...CHAT_TEMPLATE_ORIGINS)),
);
const replica = merged(
  fc.record({
    deployment: fc.string(),
    phase: fc.constantFrom("pulling", "loading", "ready", "failed", "unloading"),
    pulledBytes: uint53,
    totalBytes: uint53,
    message: fc.string(),
    load,
  }),
  optional("info", info),
  optional("others", uint32),
) as fc.Arbitrary<ReplicaStatus>;

const options = merged(
  ...[
    "contextTokens",
    "kvTokens",
    "maxSequences",
    "maxQueued",
    "threads",
    "prefillBudgetTokens",
  ].map((key) => optional(key, uint32)),
  optional(
    "decoding",
    merged(
      optional("draftTokens", uint32),
      optional("deterministic", fc.constantFrom(...DETERMINISTIC_MODES)),
      optional("contextShift", fc.constant(true)),
    ),
  ),
  optional("device", fc.string()),
  optional("gpuLayers", fc.integer({ min: -1, max: 200 })),
  optional("chatTemplate", fc.string()),
  optional("kvDtype", fc.constantFrom(...KV_DTYPES)),
  optional("stageDtype", fc.constantFrom(...STAGE_DTYPES)),
);
const weights = merged(
  fc.record({ key: fc.string(), file: fc.string(), sources: fc.array(fc.string()) }),
  optional("sha256", fc.string({ minLength: 1 })),
  optional("sizeBytes", fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })),
  optional("license", fc.string({ minLength: 1 })),
);
const upstream = merged(
  fc.record({
    model: fc.string(),
    dialect: fc.constantFrom(...UPSTREAM_DIALECTS),
    probe: fc.constantFrom(...UPSTREAM_PROBES),
    maxConcurrency: uint32,
    connectTimeoutMs: uint32,
    firstByteTimeoutMs: uint32,
    idleTimeoutMs: uint32,
    maxRetries: uint32,
    probeIntervalMs: uint32,
  }),
  optional("baseUrl", fc.string({ minLength: 1 })),
  optional("command", fc.string({ minLength: 1 })),
  optional("apiKey", fc.string({ minLength: 1 })),
);
const split = fc.record({
  mode: fc.constantFrom(...SPLIT_MODES),
  shares: fc.array(fc.nat(9)),
  mainGpu: uint32,
});
const blocks = { from: uint32, to: uint32, memoryBytes: uint32 };
const stage = fc.record({
  ...blocks,
  driver: fc.string(),
  peers: fc.array(
    fc.record({ ...blocks, node: fc.string(), address: fc.string(), deployment: fc.string() }),
  ),
  contextTokens: uint32,
  kvTokens: uint32,
  maxSequences: uint32,
  index: fc.string(),
});
const deployment = fc.oneof(
  merged(
    fc.record({ key: fc.string(), engine: fc.constant("llama"), weights, options }),
    optional("split", split),
    optional("stage", stage),
  ),
  merged(
    fc.record({ key: fc.string(), engine: fc.constant("openai"), upstream, options }),
    optional("weights", weights),
  ),
) as fc.Arbitrary<DeploymentSpec>;

test("node codec: a replica's status survives a heartbeat", () => {
  const times = { steps: uint32, busyMs: uint32, idleMs: uint32, hops: uint32, hopMicros: uint32 };
  const timed = fc
    .tuple(replica, fc.option(fc.record(times)))
    .map(([status, own]) => (own ? { ...status, load: { ...status.load, stage: own } } : status));
  const far = fc.array(fc.record({ node: fc.string(), forMs: uint32 }), { minLength: 1 });
  const reported = merged(
    timed,
    optional("stage", stage),
    optional("unreachable", far),
  ) as fc.Arbitrary<ReplicaStatus>;
  fc.assert(
    fc.property(reported, (status) => {
      const frame = attachMethod.requestSerialize({
        heartbeat: { replicas: [encodeReplica(status)] },
      });
      const decoded = attachMethod.requestDeserialize(frame).heartbeat?.replicas ?? [];
      expect(decoded.map(decodeReplica)).toEqual([status]);
    }),
  );
});

test("node codec: a deployment survives a load command", () => {
  fc.assert(
    fc.property(deployment, (spec) => {
      const frame = loadMethod.requestSerialize({ deployment: encodeDeployment(spec) });
      const decoded = loadMethod.requestDeserialize(frame).deployment;
      expect(decodeDeployment(decoded)).toEqual(spec);
    }),
  );
});

test("node codec: an unknown phase and an unknown engine are refused", () => {
  const status: ReplicaStatus = {
    deployment: "m",
    phase: "ready",
    pulledBytes: 0,
    totalBytes: 0,
    message: "",
    load: emptyLoad,
  };
  const frame = attachMethod.requestSerialize({
    heartbeat: { replicas: [{ ...encodeReplica(status), phase: "dreaming" }] },
  });
  const [wire] = attachMethod.requestDeserialize(frame).heartbeat?.replicas ?? [];
  expect(() => wire && decodeReplica(wire)).toThrow(/unknown phase "dreaming"/);
  const asked = loadMethod.requestSerialize({
    deployment: { key: "m", engine: "abacus", weights: {} },
  });
  const { deployment: spec } = loadMethod.requestDeserialize(asked);
  expect(() => decodeDeployment(spec)).toThrow(/no engine "abacus"/);
  const strange = loadMethod.requestSerialize({
    deployment: { key: "m", engine: "openai", upstream: { dialect: "morse", probe: "chat" } },
  });
  const { deployment: upstreamSpec } = loadMethod.requestDeserialize(strange);
  expect(() => decodeDeployment(upstreamSpec)).toThrow(/does not know \(morse, chat\)/);
});
