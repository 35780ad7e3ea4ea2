import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { elementCount } from "@heddle/training/ir/value";
import type { Parameters } from "@heddle/training/parameter-client";
import { fragmentsOf, type ShardSetSpec } from "./shard-spec.ts";

/**
 * A digest, as 64 hexadecimal digits, of what all workers and shards of a job must agree on:
 * tensors and shapes, their cut, and the encoding. Lengths alone do not distinguish models, since
 * slabs are padded.
 */
export function planDigest(spec: ShardSetSpec): string {
  const { parameters, servers, compression } = spec;
  const shapes = parameters.map(({ name, shape }) => [name, ...shape]);
  const fragments = fragmentsOf(spec);
  const cut = fragments === 1 ? {} : { fragments };
  const plan = JSON.stringify({ shapes, shards: servers.length, compression, ...cut });
  return createHash("sha256").update(plan).digest("hex");
}

/** Throws an AppError `invalid_value` where `found` is not the digest of this plan. */
export function checkPlan(spec: ShardSetSpec, digest: string, found: unknown): void {
  if (found === digest) return;
  const shown = spec.parameters.slice(0, SHOWN_TENSORS).map(({ name, shape }) => {
    return `${name} [${shape.join()}]`;
  });
  const more = spec.parameters.length > shown.length ? ", ..." : "";
  throw new AppError(
    "invalid_value",
    `a worker's tensors, number of shards or compression are not the job's, which has ` +
      `${shown.join(", ")}${more} in ${spec.servers.length} shards with compression ` +
      `${spec.compression}: all workers of a job must have the same model and compression`,
  );
}

const SHOWN_TENSORS = 4;

/** Throws an AppError `invalid_value` for a tensor that is missing or has another length. */
export function checkTensors({ parameters }: ShardSetSpec, tensors: Parameters): void {
  for (const { name, shape } of parameters) {
    const found = tensors[name]?.length;
    if (found === elementCount(shape)) continue;
    throw new AppError(
      "invalid_value",
      `the tensor ${name} has ${found ?? "no"} elements and the job's plan says ` +
        `[${shape.join()}]: all workers of a job must have the same model`,
    );
  }
}
