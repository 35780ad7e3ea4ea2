import { AppError } from "@heddle/base/errors";
import type { ParameterChunk__Output } from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type { DataHead } from "./data-frames.ts";
import type { DataAnswer } from "./data-listener.ts";
import type { CopyingSink } from "./data-route.ts";

/** A worker's part for a shard, and where the shard can fetch it. */
export interface PushArgument {
  readonly rank: number;
  /** From 1; 0 for the job's first parameters. */
  readonly clock: number;
  readonly weight: number;
  readonly learningRate: number;
  readonly sources: readonly string[];
  readonly squares: number;
  /** The digest of the worker's plan. */
  readonly plan: string;
}

/** The answer to a push, when its part is added or was not needed. */
export interface PushResult {
  readonly version: number;
  /** The path of the part; empty where it was not needed. */
  readonly path: string;
}

/** A push from a data connection. Throws an AppError `invalid_value` where it is malformed. */
export function readPush(push: object): PushArgument {
  const { rank, clock, sources } = push as Partial<Record<keyof PushArgument, unknown>>;
  const counts = [rank, clock].every((each) => Number.isSafeInteger(each) && Number(each) >= 0);
  if (counts && Array.isArray(sources) && sources.every((one) => typeof one === "string")) {
    return push as PushArgument;
  }
  const message = "a push needs a rank and a clock from 0, and addresses as its sources";
  throw new AppError("invalid_value", message);
}

/** Longer than any path's name. */
const MAX_PATH_BYTES = 16;

/** The answer over a data connection: the path's name. */
export function pushAnswer({ version, path }: PushResult): DataAnswer {
  const piece = Buffer.from(path);
  return { version, bytes: piece.length, pieces: piece.length === 0 ? [] : [piece] };
}

/** The reply of a gRPC call in the form of a data connection's. */
export function pushReplyChunk(version: number, path: string): ParameterChunk__Output {
  const data = Buffer.from(path);
  return { version, offset: 0, totalBytes: data.length, data };
}

/** Receives the output of `pushAnswer`. */
export class PushReplySink implements CopyingSink {
  readonly #text = Buffer.alloc(MAX_PATH_BYTES);
  #got = 0;

  /** The path of the part. */
  get path(): string {
    return this.#text.toString("latin1", 0, this.#got);
  }

  begin({ bytes }: DataHead): void {
    this.#got = 0;
    if (bytes <= MAX_PATH_BYTES) return;
    throw new AppError("server_error", `a push was answered with ${bytes} bytes: run one version`);
  }

  space(): Uint8Array {
    return this.#text.subarray(this.#got);
  }

  filled(bytes: number): void {
    this.#got += bytes;
  }

  copy(bytes: Uint8Array): void {
    this.space().set(bytes);
    this.filled(bytes.length);
  }

  end(): void {
    // Any length is complete.
  }
}
