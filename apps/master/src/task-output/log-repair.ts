import { toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { readLogMethod } from "@heddle/rpc/proto";
import { type LogName, logFileOf } from "./log-name.ts";
import type { LogStorePort } from "./log-thread/log-store-api.ts";

const READ_BYTES = 4 * 1024 * 1024;
const DEADLINE_MS = 10_000;
/** Read calls to one source for one log in one repair. */
const MAX_CALLS = 1_024;

/** A process that may have a log. */
export interface LogSource {
  /** host:port */
  readonly address: string;
  readonly role: "master" | "worker";
}

export interface LogRepairOptions {
  readonly store: LogStorePort;
  readonly credentials: NodeCredentials;
  /** The other masters, then the task's worker if it is attached. */
  sources(name: LogName): readonly LogSource[];
  readonly log: Log;
}

/**
 * Fetches what this master lacks of a log. That is what follows its end, and gaps that the worker
 * shipped to another master and then deleted.
 */
export class LogRepair {
  readonly #options: LogRepairOptions;
  /** Repairs in progress: concurrent callers share one. */
  readonly #running = new Map<string, Promise<void>>();

  constructor(options: LogRepairOptions) {
    this.#options = options;
  }

  /** Resolves when each source was asked, or this master has the whole log. */
  repair(name: LogName): Promise<void> {
    const key = JSON.stringify(name);
    const known = this.#running.get(key);
    if (known) return known;
    const work = this.#repair(name).finally(() => this.#running.delete(key));
    this.#running.set(key, work);
    return work;
  }

  async #repair(name: LogName): Promise<void> {
    const { store, credentials, sources, log } = this.#options;
    for (const source of sources(name)) {
      if (await this.#isWhole(name)) return;
      const peer = new Peer(source.address, credentials, source.role);
      try {
        await this.#fetchFrom(peer, name);
        for (const gap of await store.gaps(name)) await this.#fillFrom(peer, name, gap);
      } catch (error) {
        const { code, message } = toAppError(error);
        if (code !== "not_found")
          log.info({ source: source.address, error: message }, "no log was received from there");
      } finally {
        peer.close();
      }
    }
  }

  async #isWhole(name: LogName): Promise<boolean> {
    const { store } = this.#options;
    return (await store.state(name)).complete && (await store.gaps(name)).length === 0;
  }

  async #fillFrom(peer: Peer, name: LogName, gap: LogGap): Promise<void> {
    const { store } = this.#options;
    let offset = gap.start;
    for (let call = 0; call < MAX_CALLS && offset < gap.end; call++) {
      const maxBytes = Math.min(READ_BYTES, gap.end - offset);
      const request = { file: logFileOf(name), offset, maxBytes };
      const signal = AbortSignal.timeout(DEADLINE_MS);
      const before = offset;
      for await (const piece of peer.serverStream(readLogMethod, request, signal)) {
        await store.fill(name, piece);
        offset = Math.max(offset, piece.offset + piece.data.byteLength);
      }
      if (offset === before) return;
    }
  }

  async #fetchFrom(peer: Peer, name: LogName): Promise<void> {
    const { store } = this.#options;
    for (let call = 0; call < MAX_CALLS; call++) {
      const { end: offset, complete } = await store.state(name);
      if (complete) return;
      const request = { file: logFileOf(name), offset, maxBytes: READ_BYTES };
      const signal = AbortSignal.timeout(DEADLINE_MS);
      for await (const piece of peer.serverStream(readLogMethod, request, signal)) {
        await store.append(name, piece);
      }
      if ((await store.state(name)).end === offset) return;
    }
  }
}

type LogGap = Awaited<ReturnType<LogStorePort["gaps"]>>[number];
