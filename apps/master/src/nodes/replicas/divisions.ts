import { systemClock } from "@heddle/base/clock";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { readDivisionsMethod } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { MasterPeers } from "../../control-plane/master-peers.ts";

/** What the leader says is at most so old. */
const MAX_AGE_MS = 1_000;
const DEADLINE_MS = 1_000;

/** Why workers do not divide a deployment's model, and what it takes undivided. */
export interface DivisionNote {
  /** They cannot. */
  readonly misfit?: string | undefined;
  /** The placement `auto` does not. */
  readonly undivided?: string | undefined;
  /** Memory of the whole model in one worker, where it is known. */
  readonly wholeBytes?: number | undefined;
}

/** What the leader knows of the division of models; the other masters ask it. */
export class Divisions {
  readonly #control: Pick<ControlPlane, "group">;
  readonly #peers: MasterPeers;
  /** Keyed by deployment. */
  #notes: ReadonlyMap<string, DivisionNote> = new Map();
  #asked: Promise<void> = Promise.resolve();
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(control: Pick<ControlPlane, "group">, credentials: NodeCredentials) {
    this.#control = control;
    this.#peers = new MasterPeers(control, credentials);
  }

  close(): void {
    this.#peers.close();
  }

  /** On the leader: all of them. */
  set(notes: ReadonlyMap<string, DivisionNote>): void {
    this.#notes = notes;
  }

  get all(): ReadonlyMap<string, DivisionNote> {
    return this.#notes;
  }

  /** What is known now; the leader is asked for what is later. */
  of(deployment: string): DivisionNote {
    void this.fresh();
    return this.#notes.get(deployment) ?? {};
  }

  /** Resolves when the notes are those of the leader, or it does not answer. */
  fresh(): Promise<void> {
    const nowMs = systemClock.monotonicMs();
    if (nowMs - this.#askedMs >= MAX_AGE_MS) {
      this.#askedMs = nowMs;
      this.#asked = this.#ask();
    }
    return this.#asked;
  }

  async #ask(): Promise<void> {
    const { id, leader, members = [] } = this.#control.group?.status() ?? {};
    const address = members.find((member) => member.id === leader)?.address;
    if (leader === id || address === undefined) return;
    try {
      const peer = this.#peers.get(address);
      const { notes } = await peer.unary(readDivisionsMethod, {}, { deadlineMs: DEADLINE_MS });
      this.#notes = new Map(
        notes.map(({ deployment, misfit, undivided, wholeBytes }) => [
          deployment,
          {
            ...(misfit !== "" && { misfit }),
            ...(undivided !== "" && { undivided }),
            ...(wholeBytes > 0 && { wholeBytes }),
          },
        ]),
      );
    } catch {
      // What was known is shown on.
    }
  }
}
