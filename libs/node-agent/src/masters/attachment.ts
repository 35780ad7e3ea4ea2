import { keepConnected } from "@heddle/base/async/keep-connected";
import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { AppError, toAppError } from "@heddle/base/errors";
import type { AttachReply__Output } from "@heddle/contracts/generated/heddle/v1/AttachReply";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { Peer } from "@heddle/rpc/peer";
import { attachMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import type { ReportedGroup } from "./known-masters.ts";

/**
 * A master that does not answer `register` in this time is disconnected and retried. The time
 * doubles after each such end, up to a maximum, so that a busy master gets through a thousand nodes
 * that come at once.
 */
const REGISTER_TIMEOUT_MS = 5_000;
const MAX_DOUBLINGS = 4;
const reconnect = { baseMs: 100, maxMs: 3_000 };
/** Fast retries, because a master that starts with the node is ready soon. */
const EAGER_TRIES = 20;
const EAGER_MS = 200;
/**
 * Consecutive failures before the operator is warned: three masters may need ten seconds to agree.
 */
const QUIET_FAILURES = 24;

/** Retry interval for a removed master, whose address another one may take. */
const REMOVED_REST_MS = 10_000;

export interface AttachmentOptions {
  /** host:port of the master's gRPC server. */
  readonly master: string;
  readonly credentials: NodeCredentials;
  /** What the node registers with at the time of the call. */
  readonly register: () => Register;
  /** The node's state at the time of the call, for that master. */
  readonly heartbeat: (masterName: string) => Heartbeat;
  /**
   * The cluster that the node works for; it reports a refusal to masters of an older incarnation.
   */
  readonly followed: FollowedCluster;
  readonly log: Log;
  readonly times?: Partial<AttachmentTimes>;
  /** Awaited before each retry: as long as this master is known to be removed. */
  readonly whileRemoved?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Called with the group as this master reports it; undefined when it disconnects. */
  readonly onReport?: ((report: ReportedGroup | undefined) => void) | undefined;
}

export interface AttachmentTimes {
  /** 10,000 by default. */
  readonly removedRestMs: number;
  /** 5,000 by default: the first of the times to answer `register`. */
  readonly registerTimeoutMs: number;
}

/**
 * Keeps a node attached to one master: it registers, sends heartbeats at the master's interval and
 * on `report()`, and reattaches when the stream ends. A removed master is retried rarely and
 * without a log line.
 *
 * Heartbeats have a random phase, so that nodes do not report in lockstep after a master's start.
 * One node's phases also differ per master, so that differences between the masters' knowledge
 * occur in every run.
 */
export class Attachment {
  readonly #options: AttachmentOptions;
  readonly #closing = new AbortController();
  readonly #done: Promise<void>;
  #report: (() => void) | undefined;
  #detach: (() => void) | undefined;
  /** Since the last attachment: attempts that the master did not answer in time. */
  #timeouts = 0;
  readonly #nextReport = new OncePerTurn(() => this.#report?.());

  constructor(options: AttachmentOptions) {
    this.#options = options;
    this.#done = this.#run();
  }

  /** Sends a heartbeat within this turn of the event loop; further calls in it are merged. */
  report(): void {
    this.#nextReport.request();
  }

  /** Attaches again: what it registers with has changed. */
  registerAgain(): void {
    this.#detach?.();
  }

  get isAttached(): boolean {
    return this.#report !== undefined;
  }

  close(): Promise<void> {
    this.#closing.abort();
    return this.#done;
  }

  #run(): Promise<void> {
    const { master, log, whileRemoved } = this.#options;
    let isRemoved = false;
    return keepConnected({
      backoff: reconnect,
      signal: this.#closing.signal,
      beforeNext: whileRemoved,
      connect: (onOpen) =>
        this.#attachOnce(() => {
          onOpen();
          isRemoved = false;
        }),
      onEnd: (error, failures, pauseMs) => {
        if (!isRemoved && error.code === "member_removed") {
          isRemoved = true;
          log.info({ master }, "detached from a master that was removed from its group");
        } else if (!isRemoved) this.#logFailure(error, failures);
        if (isRemoved) return this.#options.times?.removedRestMs ?? REMOVED_REST_MS;
        if (this.#timeouts > 0) return Math.random() * this.#registerTimeoutMs;
        return Math.min(pauseMs, failures <= EAGER_TRIES ? EAGER_MS : Infinity);
      },
    });
  }

  get #registerTimeoutMs(): number {
    return this.#options.times?.registerTimeoutMs ?? REGISTER_TIMEOUT_MS;
  }

  /** Nodes and masters start together, so first failures are not logged. */
  #logFailure({ message }: AppError, failures: number): void {
    const { master, log } = this.#options;
    const fact = "not attached to a master, retrying";
    if (failures === QUIET_FAILURES) log.warn({ master, error: message }, fact);
    else log.info({ master, error: message }, fact);
  }

  #follow(cluster: string): void {
    const { master, followed, log } = this.#options;
    followed.follow(cluster).catch((error: unknown) => {
      log.warn({ master, error: toAppError(error).message }, "the cluster of a master is refused");
    });
  }

  #note({ cluster, revoked }: AttachReply__Output): void {
    const { master, followed, log } = this.#options;
    if (followed.refusalOf(cluster) !== undefined) return;
    const reported = revoked.map(({ node, atMs }) => [node, Number(atMs)] as const);
    followed.revoke(reported).catch((error: unknown) => {
      const { message } = toAppError(error);
      log.warn({ master, error: message }, "revoked certificates are not kept over a restart");
    });
  }

  /** Resolves with the reason when the stream has ended. */
  #attachOnce(onAttached: () => void): Promise<AppError> {
    const { master, credentials, register, heartbeat, followed, log } = this.#options;
    const peer = new Peer(master, credentials);
    const stream = peer.duplex(attachMethod);
    const { promise, resolve } = Promise.withResolvers<AppError>();
    const timeoutMs = this.#registerTimeoutMs * 2 ** Math.min(MAX_DOUBLINGS, this.#timeouts);
    let timer: NodeJS.Timeout = setTimeout(() => {
      this.#timeouts += 1;
      stream.cancel();
    }, timeoutMs);
    const onClose = () => stream.cancel();
    const end = (error: AppError) => {
      clearTimeout(timer);
      this.#report = undefined;
      this.#detach = undefined;
      this.#options.onReport?.(undefined);
      this.#closing.signal.removeEventListener("abort", onClose);
      peer.close();
      resolve(error);
    };
    this.#closing.signal.addEventListener("abort", onClose, { once: true });
    stream.on("error", (error) => end(fromStatus(error, master)));
    stream.on("end", () => end(fromStatus(new Error("the master closed the stream"), master)));
    stream.on("data", (reply: AttachReply__Output) => {
      // Before its report: that of a cluster which is no longer followed does not count.
      if (!this.#report) this.#follow(reply.cluster);
      this.#options.onReport?.(groupOf(reply));
      this.#note(reply);
      // Later messages concern only the group.
      if (this.#report) return;
      clearTimeout(timer);
      this.#timeouts = 0;
      const beat = () => {
        const refusesLeader = followed.refusalOf(reply.cluster);
        const state = heartbeat(reply.masterId);
        stream.write({ heartbeat: { ...state, ...(refusesLeader && { refusesLeader }) } });
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
    this.#detach = () => {
      end(new AppError("cancelled", "the node registers again"));
      stream.cancel();
    };
    stream.write({ register: register() });
    return promise;
  }
}

function groupOf({ masterId, cluster, members, addresses }: AttachReply__Output): ReportedGroup {
  const reported = members.map((name, at) => ({ name, address: addresses[at] }));
  return { masterName: masterId, cluster, members: reported };
}
