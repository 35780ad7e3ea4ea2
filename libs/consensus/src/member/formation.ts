import { createHash } from "node:crypto";
import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { AppError, toAppError } from "@heddle/base/errors";
import { NO_SECRET_KEYS, type SecretKeys } from "@heddle/base/secret-keys";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type {
  IntroductionReply,
  IntroductionReply__Output,
} from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { Member } from "../ports.ts";
import { admissionProof } from "./admission.ts";
import { introduce } from "./ask-member.ts";
import { type Beginning, type FullIdentity, type Identity, writeIdentity } from "./identity.ts";
import { checkSameKeys } from "./key-agreement.ts";

const ASK_AGAIN_MS = 200;
const ASK_DEADLINE_MS = 2_000;
/** How often it is said what is waited for. */
const REPORT_EVERY_MS = 10_000;
/** Longer than a connection outlives the machine at its other end. */
const NAMESAKE_TIMEOUT_MS = 10_000;
/** Another master of the name that runs, or a join token that is missing: neither may pass by itself. */
const FINAL: ReadonlySet<string> = new Set(["conflict", "permission_denied"]);

export interface FormationOptions {
  readonly directory: string;
  readonly identity: Identity;
  /** host:port by name of all masters, this one's among them. */
  readonly peers: ReadonlyMap<string, string>;
  readonly credentials: NodeCredentials;
  readonly keys?: SecretKeys | undefined;
  /** Read at each try: it may come while this master waits. */
  readonly joinToken?: (() => string | undefined) | undefined;
  readonly log: Log;
  readonly signal: AbortSignal;
  /** The highest cluster version that this master supports. */
  readonly newestVersion: number;
  /** How long the group may say that the master of this one's name runs; 10 s. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Finds a master's place in its group; another master's group is joined. A new group is formed only
 * when every master of the list has answered that it has no state. So one whose disk was wiped
 * never votes again under its old id.
 */
export class Formation {
  readonly #options: FormationOptions;

  constructor(options: FormationOptions) {
    this.#options = options;
  }

  /** Answers another master that looks for its group while this one has none. */
  introduce(from: Introduction__Output): IntroductionReply {
    const { identity, peers, keys = NO_SECRET_KEYS } = this.#options;
    const { ids: secretsKeys } = keys;
    this.#checkPeers(from.name, from.peers);
    checkSameKeys(keys, from);
    return { name: identity.name, nonce: identity.nonce, peers: sortedNames(peers), secretsKeys };
  }

  /**
   * Resolves when the identity is complete and on the disk. Rejects with:
   * - `conflict` where another live master of this name is in the group,
   * - `permission_denied` where the group has no join token for this master.
   */
  async find(): Promise<FullIdentity> {
    const { peers, identity, signal, log } = this.#options;
    const { timeoutMs = NAMESAKE_TIMEOUT_MS } = this.#options;
    const others = [...peers].filter(([name]) => name !== identity.name);
    if (others.length > 0) await this.#checkOwnAddress();
    let sinceReportMs = REPORT_EVERY_MS;
    let refusedMs = 0;
    while (!signal.aborted) {
      const asked = await Promise.all(others.map(([, address]) => this.#ask(address)));
      const replies = asked.flatMap((reply) => (reply instanceof AppError ? [] : [reply]));
      for (const { cluster, id, members, lastId } of replies) {
        if (cluster === "" || id === 0) continue;
        // One of the first members that comes late, in a group that is still as it was formed.
        const isFirst = members.length === lastId && members.some((member) => member.id === id);
        return this.#complete(cluster, id, { kind: isFirst ? "first" : "joining", members });
      }
      refuseOtherList(asked);
      if (replies.length === others.length && replies.every(({ cluster }) => cluster === "")) {
        return this.#form(replies);
      }
      if (sinceReportMs >= REPORT_EVERY_MS) {
        sinceReportMs = 0;
        const errors = asked.flatMap((reply) => (reply instanceof AppError ? reply.message : []));
        log.info({ errors }, "waiting for the other masters to find or form the group");
      }
      const refusal = asked.find((reply) => reply instanceof AppError && FINAL.has(reply.code));
      refusedMs = refusal ? refusedMs + ASK_AGAIN_MS : 0;
      if (refusal && refusedMs > timeoutMs) throw refusal;
      sinceReportMs += ASK_AGAIN_MS;
      await abortableDelay(ASK_AGAIN_MS, signal);
    }
    throw new AppError("cancelled", "the start was interrupted");
  }

  /** The group would look for this master where another one is, and take that one's place from it. */
  async #checkOwnAddress(): Promise<void> {
    const { identity, peers } = this.#options;
    const address = peers.get(identity.name) ?? "";
    const reply = await this.#ask(address);
    const isOther =
      reply instanceof AppError ? reply.code === "conflict" : reply.nonce !== identity.nonce;
    if (!isOther) return;
    const message = `--peers gives ${address} as this master, ${identity.name}, but another master answers there. Give --peers the address at which this one is reached, or stop the other one.`;
    throw new AppError("conflict", message);
  }

  async #ask(address: string): Promise<IntroductionReply__Output | AppError> {
    const { identity, peers, credentials, joinToken, signal } = this.#options;
    const own = peers.get(identity.name) ?? "";
    const { name, nonce } = identity;
    const { newestVersion: supports, keys = NO_SECRET_KEYS } = this.#options;
    const token = joinToken?.();
    const admission = token && admissionProof(token, { name, nonce, address: own });
    const shown = admission ? { admission } : {};
    const introduction = { name, nonce, address: own, peers: sortedNames(peers), supports };
    const request = { ...introduction, secretsKeys: keys.ids, ...shown };
    try {
      return await introduce(address, credentials, request, {
        deadlineMs: ASK_DEADLINE_MS,
        signal,
      });
    } catch (error) {
      const failure = toAppError(error);
      if (failure.code === "invalid_api_key") throw failure;
      return failure;
    }
  }

  #form(replies: readonly IntroductionReply__Output[]): Promise<FullIdentity> {
    const { identity, peers, keys = NO_SECRET_KEYS } = this.#options;
    for (const reply of replies) checkSameKeys(keys, reply);
    const nonces = new Map(replies.map(({ name, nonce }) => [name, nonce]));
    nonces.set(identity.name, identity.nonce);
    const members = sortedNames(peers).map((name, at) => {
      const nonce = nonces.get(name);
      if (nonce === undefined) {
        const message = `--peers gives ${peers.get(name)} as ${name}, but another master answers there`;
        throw new AppError("invalid_value", message);
      }
      return { id: at + 1, name, address: peers.get(name) ?? "", nonce };
    });
    const own = members.find(({ name }) => name === identity.name) as Member;
    return this.#complete(clusterIdOf(members), own.id, { kind: "first", members });
  }

  async #complete(cluster: string, id: number, beginning: Beginning): Promise<FullIdentity> {
    const identity: FullIdentity = { ...this.#options.identity, cluster, id, beginning };
    const { directory, keys = NO_SECRET_KEYS } = this.#options;
    await writeIdentity(directory, identity, keys);
    return identity;
  }

  #checkPeers(name: string, theirs: readonly string[]): void {
    const ours = sortedNames(this.#options.peers);
    if (ours.join() === theirs.join()) return;
    const message = `${name} was started with --peers for ${theirs.join(", ")}, but ${this.#options.identity.name} with ${ours.join(", ")}; give all masters of a new cluster the same`;
    throw new AppError("invalid_value", message);
  }
}

/**
 * Throws the refusal of a master without a group that was given other peers.
 * Waits while any master may still have a group: lists of different times differ.
 */
function refuseOtherList(asked: readonly (IntroductionReply__Output | AppError)[]): void {
  let refusal: AppError | undefined;
  for (const reply of asked) {
    if (!(reply instanceof AppError)) {
      if (reply.cluster !== "") return;
    } else if (reply.code === "invalid_value") refusal = reply;
    else return;
  }
  if (refusal) throw refusal;
}

/** All first members come to the same id, and no other group ever does. */
function clusterIdOf(members: readonly Member[]): string {
  const text = members.map(({ name, nonce }) => `${name}:${nonce}`).join("\n");
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}

function sortedNames(peers: ReadonlyMap<string, string>): string[] {
  return [...peers.keys()].sort();
}
