import { toAppError } from "@heddle/base/errors";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { followResponseMethod } from "@heddle/rpc/proto";
import { Inject, type OnApplicationShutdown } from "@nestjs/common";
import { CREDENTIALS } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { MasterPeers } from "../../control-plane/master-peers.ts";
import type { Piece } from "./pieces.ts";
import type { ResponseUpdate } from "./response-builder.ts";

/** For one read of a response on another master. */
const POLL_MS = 3_000;
/** The responses that a master runs are lost if it does not answer for this long. */
const LOST_AFTER_MS = 10_000;
/** Between two failures that are counted as one silence. */
const SILENCE_GAP_MS = 30_000;

/** The response to follow, without the pieces that the caller has. */
export interface WantedResponse {
  readonly id: string;
  readonly owner: string;
  readonly from: number;
}

/** A response as it is on the master that runs it, or what is known of that master. */
export type PolledResponse = ResponseUpdate | "lost" | "unknown";

/** Monotonic, in milliseconds. */
interface Silence {
  readonly sinceMs: number;
  readonly lastMs: number;
}

/** Responses that run on other masters. */
export class ResponseRelay implements OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #peers: MasterPeers;
  /** Keyed by master; only members have one. */
  readonly #silences = new Map<string, Silence>();

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(CREDENTIALS) credentials: NodeCredentials,
  ) {
    this.#control = control;
    this.#peers = new MasterPeers(control, credentials);
  }

  onApplicationShutdown(): void {
    this.#peers.close();
  }

  /** What the response comes to there. Throws `not_found` where that master does not run it. */
  async *follow(
    master: string,
    wanted: WantedResponse,
    signal: AbortSignal,
  ): AsyncGenerator<ResponseUpdate & { readonly isCurrent: boolean }, void> {
    const address = this.#addressOf(master);
    if (address === undefined) return;
    const stream = this.#peers.get(address).serverStream(followResponseMethod, wanted, signal);
    for await (const { json, isCurrent } of stream) {
      yield { ...(JSON.parse(json.toString()) as ResponseUpdate), isCurrent };
    }
  }

  /** The response as it is there now; `lost` where nothing runs it any more. */
  async poll(master: string, id: string, owner: string): Promise<PolledResponse> {
    if (this.#addressOf(master) === undefined) return "lost";
    const pieces: Piece[] = [];
    try {
      const signal = AbortSignal.timeout(POLL_MS);
      for await (const next of this.follow(master, { id, owner, from: 0 }, signal)) {
        this.#silences.delete(master);
        pieces.push(...next.pieces);
        if (next.isCurrent) return { hasBegun: next.hasBegun, pieces, outcome: next.outcome };
      }
      return "unknown";
    } catch (thrown) {
      const { code } = toAppError(thrown);
      if (code === "not_found") {
        this.#silences.delete(master);
        return "lost";
      }
      return this.#isSilent(master) ? "lost" : "unknown";
    }
  }

  #isSilent(master: string): boolean {
    const now = performance.now();
    const before = this.#silences.get(master);
    const isSame = before !== undefined && now - before.lastMs < SILENCE_GAP_MS;
    const sinceMs = isSame ? before.sinceMs : now;
    this.#silences.set(master, { sinceMs, lastMs: now });
    return now - sinceMs >= LOST_AFTER_MS;
  }

  #addressOf(master: string): string | undefined {
    const { members = [] } = this.#control.group?.status() ?? {};
    const address = members.find(({ name }) => name === master)?.address;
    if (address === undefined) this.#silences.delete(master);
    return address;
  }
}
