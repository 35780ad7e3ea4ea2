import { setTimeout as delay } from "node:timers/promises";
import { Backoff } from "@heddle/base/backoff";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { AttachReply__Output } from "@heddle/contracts/generated/heddle/v1/AttachReply";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import type { NodeCredentials } from "../credentials.ts";
import { Peer } from "../peer.ts";
import { attachMethod } from "../proto.ts";
import { fromStatus } from "../status.ts";
import type { FollowedCluster } from "./followed-cluster.ts";
import type { NodeLog } from "./log.ts";

/** A master that does not answer `register` in this time is left and tried again. */
const registerTimeoutMs = 5_000;
const reconnect = { baseMs: 100, maxMs: 3_000 };
/** Tries in a row that follow one another fast: a master that starts beside the node is soon there. */
const eagerTries = 20;
const eagerMs = 200;
/** The failure in a row at which the operator is warned: three masters may take ten seconds to agree. */
const quietFailures = 24;

/** How often a master that left its group for good is looked for: one may take its place. */
const removedRestMs = 10_000;

export interface AttachmentOptions {
  /** host:port of the master's gRPC server. */
  readonly master: string;
  readonly credentials: NodeCredentials;
  readonly register: Register;
  /** The node's state at the moment of the call, as that master is told of it. */
  readonly heartbeat: (masterName: string) => Heartbeat;
  /** Which cluster the node works for: it tells a master of one that is over that it refuses it. */
  readonly followed: FollowedCluster;
  readonly log: NodeLog;
  /** 10,000 where absent. */
  readonly removedRestMs?: number;
  /** Waited for before each try but the first: as long as this master is known to be removed. */
  readonly whileRemoved?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Told what this master says of its group; undefined when it is gone. */
  readonly onMembers?: ((said: SaidMembers | undefined) => void) | undefined;
}

/** A master's word of its group. */
export interface SaidMembers {
  readonly masterName: string;
  /** The names of all masters of the group; empty where it does not know. */
  readonly members: readonly string[];
}

/**
 * Keeps a node attached to one master: registers, reports at once, at the interval the master asks for
 * and on `report()`, and attaches anew for ever when the stream ends. One that says that it was removed
 * from its group is looked for seldom, and without a word.
 *
 * The beats have a random phase: a thousand nodes that attach to a master that has just started must not
 * report in lockstep ever after. Those of one node to its masters differ too, so that what one master
 * has heard, and another has yet to hear, shows in every run.
 */
export class Attachment {
  readonly #options: AttachmentOptions;
  readonly #closing = new AbortController();
  readonly #done: Promise<void>;
  #report: (() => void) | undefined;
  #reportQueued = false;

  constructor(options: AttachmentOptions) {
    this.#options = options;
    this.#done = this.#run();
  }

  /** Sends a heartbeat within this turn of the event loop; further calls in it are folded. */
  report(): void {
    if (this.#reportQueued) return;
    this.#reportQueued = true;
    setImmediate(() => {
      this.#reportQueued = false;
      this.#report?.();
    });
  }

  close(): Promise<void> {
    this.#closing.abort();
    return this.#done;
  }

  async #run(): Promise<void> {
    const backoff = new Backoff(reconnect);
    const { master, log } = this.#options;
    let failures = 0;
    let isRemoved = false;
    while (!this.#closing.signal.aborted) {
      const error = await this.#attachOnce(() => {
        backoff.reset();
        failures = 0;
        isRemoved = false;
      });
      if (this.#closing.signal.aborted) return;
      failures++;
      if (!isRemoved && error.code === "member_removed") {
        isRemoved = true;
        log.info({ master }, "detached from a master that was removed from its group");
      } else if (!isRemoved) this.#tellFailure(error, failures);
      const eagerRestMs = Math.min(backoff.nextMs(), failures <= eagerTries ? eagerMs : Infinity);
      const restMs = isRemoved ? (this.#options.removedRestMs ?? removedRestMs) : eagerRestMs;
      await delay(restMs, undefined, { signal: this.#closing.signal }).catch(() => {});
      await this.#options.whileRemoved?.(this.#closing.signal);
    }
  }

  /** Nodes and masters start side by side: that the master is not there yet is no news. */
  #tellFailure({ message }: AppError, failures: number): void {
    const { master, log } = this.#options;
    const fact = "not attached to a master, retrying";
    if (failures === quietFailures) log.warn({ master, error: message }, fact);
    else log.info({ master, error: message }, fact);
  }

  #follow(cluster: string): void {
    const { master, followed, log } = this.#options;
    followed.follow(cluster).catch((error: unknown) => {
      log.warn({ master, error: toAppError(error).message }, "the cluster of a master is refused");
    });
  }

  /** Resolves with the reason when the stream has ended. */
  #attachOnce(onAttached: () => void): Promise<AppError> {
    const { master, credentials, register, heartbeat, followed, log } = this.#options;
    const peer = new Peer(master, credentials);
    const stream = peer.duplex(attachMethod);
    const { promise, resolve } = Promise.withResolvers<AppError>();
    let timer: NodeJS.Timeout = setTimeout(() => stream.cancel(), registerTimeoutMs);
    const onClose = () => stream.cancel();
    const end = (error: AppError) => {
      clearTimeout(timer);
      this.#report = undefined;
      this.#options.onMembers?.(undefined);
      this.#closing.signal.removeEventListener("abort", onClose);
      peer.close();
      resolve(error);
    };
    this.#closing.signal.addEventListener("abort", onClose, { once: true });
    stream.on("error", (error) => end(fromStatus(error, master)));
    stream.on("end", () => end(fromStatus(new Error("the master closed the stream"), master)));
    stream.on("data", (reply: AttachReply__Output) => {
      this.#options.onMembers?.({ masterName: reply.masterId, members: reply.members });
      // What comes later tells of the members alone.
      if (this.#report) return;
      clearTimeout(timer);
      this.#follow(reply.cluster);
      const beat = () => {
        const refusesLeader = followed.refusalOf(reply.cluster);
        const told = heartbeat(reply.masterId);
        stream.write({ heartbeat: { ...told, ...(refusesLeader && { refusesLeader }) } });
      };
      this.#report = beat;
      const intervalMs = Math.max(50, reply.heartbeatIntervalMs);
      timer = setTimeout(() => {
        beat();
        timer = setInterval(beat, intervalMs);
      }, Math.random() * intervalMs);
      log.info({ master, masterId: reply.masterId }, "attached");
      onAttached();
      beat();
    });
    stream.write({ register });
    return promise;
  }
}
