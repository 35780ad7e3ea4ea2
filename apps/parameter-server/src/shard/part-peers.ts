import { AppError } from "@heddle/base/errors";
import type { ParameterChunk__Output } from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import { takeMethod } from "@heddle/parameters/shards/shard-methods";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import { Peer } from "@heddle/rpc/peer";

/** A worker that serves parts over gRPC. */
interface PartServer {
  readonly rank: number;
  readonly address: string;
  /** Undefined without TLS, empty where the worker has sent none. */
  readonly certificate: string | undefined;
}

/** The gRPC connections to the workers of a shard's job, one to each. */
export class PartPeers {
  readonly #peers = new Map<string, Peer>();

  take(
    server: PartServer,
    { jobId, attempt, shard, jobToken }: ShardSpec,
    clock: number,
    signal: AbortSignal,
  ): AsyncIterable<ParameterChunk__Output> {
    const request = { id: { jobId, attempt, shard }, clock };
    return this.#peer(server, jobToken).serverStream(takeMethod, request, signal);
  }

  close(): void {
    for (const peer of this.#peers.values()) peer.close();
    this.#peers.clear();
  }

  /**
   * The peer is a task, not a node: it receives the attempt's token and no credentials of this
   * server.
   */
  #peer({ rank, address, certificate }: PartServer, jobToken: Uint8Array): Peer {
    if (certificate === "") {
      throw new AppError("precondition_failed", `rank ${rank} has sent no certificate`);
    }
    const shown = { jobToken: Buffer.from(jobToken).toString("hex"), certificate };
    const key = [rank, address, shown.jobToken, certificate].join();
    for (const [other, peer] of this.#peers) {
      if (other === key) return peer;
      // An earlier task of the rank: its parts are not accepted any more.
      if (!other.startsWith(`${rank},`)) continue;
      peer.close();
      this.#peers.delete(other);
    }
    const peer = new Peer(address, shown, "worker", bulkChannelOptions);
    this.#peers.set(key, peer);
    return peer;
  }
}
