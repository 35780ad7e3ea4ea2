import type { Member } from "@heddle/consensus/ports";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { introduceMethod } from "@heddle/rpc/proto";
import type { FullIdentity } from "./identity.ts";

const CHECK_MS = 250;
const ASK_DEADLINE_MS = 1_500;
/** Masters of builds without cluster versions do not tell what they support. */
const UNTOLD_VERSION = 1;

export interface VersionRaiseOptions {
  readonly identity: FullIdentity;
  readonly credentials: NodeCredentials;
  /** The highest cluster version that this master supports. */
  readonly supported: number;
  readonly version: () => number;
  readonly leads: () => boolean;
  /** The other members, voters and learners, each at the address where it is now. */
  readonly others: () => readonly Member[];
  readonly raise: (version: number) => Promise<unknown>;
  readonly log: NodeLog;
}

/**
 * Raises the cluster version while this master leads, once every member has answered that it supports
 * the next one. A member that does not answer holds it back. Ends when the newest version is reached.
 */
export class VersionRaise {
  readonly #options: VersionRaiseOptions;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #told = "";

  constructor(options: VersionRaiseOptions) {
    this.#options = options;
    this.#next();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  #next(): void {
    this.#timer = setTimeout(() => {
      this.#check()
        // Without a leader, or with another one, the next check sees what has come of it.
        .catch(() => undefined)
        .finally(() => {
          const { version, supported } = this.#options;
          if (!this.#stop.signal.aborted && version() < supported) this.#next();
        });
    }, CHECK_MS);
  }

  async #check(): Promise<void> {
    const { version, supported, leads, others, raise, log } = this.#options;
    if (!leads() || version() >= supported) return;
    const members = others();
    const answers = await Promise.all(members.map((member) => this.#ask(member)));
    const common = Math.min(supported, ...answers);
    const current = version();
    if (common > current) {
      log.info({ from: current, to: common }, "the cluster version is raised");
      await raise(common);
      return;
    }
    const waitsFor = members.flatMap(({ name }, at) => (answers[at]! > current ? [] : [name]));
    if (waitsFor.join() === this.#told) return;
    this.#told = waitsFor.join();
    const text = "the cluster version rises when these masters run a build that supports the next";
    log.info({ version: current, next: supported, waitsFor }, text);
  }

  /** The version that a member supports; 0 where it does not answer, or another master does. */
  async #ask(member: Member): Promise<number> {
    const { identity, credentials } = this.#options;
    const { name, nonce, id, cluster } = identity;
    const peer = new Peer(member.address, credentials);
    try {
      const limits = { deadlineMs: ASK_DEADLINE_MS, signal: this.#stop.signal };
      const reply = await peer.unary(introduceMethod, { name, nonce, member: id }, limits);
      if (reply.nonce !== member.nonce || reply.cluster !== cluster) return 0;
      return supportedBy(reply);
    } catch {
      return 0;
    } finally {
      peer.close();
    }
  }
}

/** The version that a master which introduces itself supports. */
export function supportedBy({ supports }: { readonly supports: number }): number {
  return supports || UNTOLD_VERSION;
}
