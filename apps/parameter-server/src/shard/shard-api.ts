import type { PushArgument, PushResult } from "@heddle/parameters/data-plane/push-announcement";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import type { TlsMaterial } from "@heddle/pki/tls-identity";
import type { PlainCredentials } from "@heddle/rpc/credentials";

export interface ShardFigures {
  readonly version: number;
  readonly elements: number;
  readonly pushes: number;
  readonly refusedInvalid: number;
  readonly begunVersion: number;
  readonly refusedUnauthenticated: number;
  readonly stragglers: number;
  readonly workers: number;
  readonly departures: number;
  readonly bytesPushed: number;
  readonly bytesPulled: number;
  readonly ready: boolean;
  readonly dataAddress: string;
  readonly dataSocket: string;
  readonly dataPath: string;
}

/** A view of the parameters at rest, until it is released. */
export interface SlabLease {
  readonly lease: number;
  readonly version: number;
}

export interface WrittenCheckpoint {
  readonly version: number;
  readonly bytes: number;
  readonly sha256: Uint8Array;
}

/** A shard thread's calls for the process that owns it. */
export interface ShardApi {
  /** A newer certificate of this node. */
  renew(material: TlsMaterial, signal: AbortSignal): Promise<void>;
  reopen(spec: ShardSpec, signal: AbortSignal): Promise<void>;
  figures(argument: undefined, signal: AbortSignal): Promise<ShardFigures>;
  push(argument: PushArgument, signal: AbortSignal): Promise<PushResult>;
  /**
   * With a rank: waits until it may read the parameters; without: until no update is in progress.
   */
  lease(
    argument: { readonly rank?: number; readonly clock: number; readonly plan?: string },
    signal: AbortSignal,
  ): Promise<SlabLease>;
  release(argument: { readonly lease: number; readonly bytes: number }): Promise<void>;
  member(argument: {
    readonly rank: number;
    readonly leaves: boolean;
    readonly incarnation: number;
    /** PEM, of a task's own server; empty where nodes do not use TLS. */
    readonly certificate?: string;
  }): Promise<number>;
  checkpoint(
    argument: { readonly path: string; readonly version: number },
    signal: AbortSignal,
  ): Promise<WrittenCheckpoint>;
  restore(
    argument: {
      readonly name: string;
      readonly sources: readonly string[];
      readonly pieces: number;
    },
    signal: AbortSignal,
  ): Promise<number>;
}

/** The start message of a shard's thread. */
export interface ShardStart {
  readonly spec: ShardSpec;
  readonly credentials: PlainCredentials;
  readonly host: string;
  readonly socketPath: string;
  /** The memory of the server's RefusalCounts. */
  readonly refusals: SharedArrayBuffer;
}
