import type { IntroductionReply__Output } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { introduceMethod } from "@heddle/rpc/proto";
import type { Member } from "../ports.ts";
import type { FullIdentity } from "./identity.ts";

const CHECK_MS = 250;
const ASK_DEADLINE_MS = 1_500;

/** What a member says of itself; undefined where it does not answer, or another master does. */
export type MemberAnswer = IntroductionReply__Output | undefined;

/** Something that the group takes up when all its members can. */
export interface Step {
  /** What is said of members that hold it back. */
  readonly waitText: string;
  /** Whether there is nothing left to take up. */
  isDone(): boolean;
  /** Whether it may be taken up, as far as this master knows. */
  isDue(): boolean;
  /** Whether a member that answers so can go along. */
  accepts(answer: MemberAnswer): boolean;
  /** Takes it up: all members accept it. */
  take(answers: readonly MemberAnswer[]): Promise<unknown>;
}

export interface AgreementParts {
  readonly identity: FullIdentity;
  readonly credentials: NodeCredentials;
  readonly leads: () => boolean;
  /** The other members, voters and learners, each at the address where it is now. */
  readonly others: () => readonly Member[];
  readonly log: NodeLog;
}

/**
 * Has the group take a step while this master leads, once every member has answered that it can. A member
 * that does not answer holds it back. Ends when the step is done.
 */
export class Agreement {
  readonly #parts: AgreementParts;
  readonly #step: Step;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #told = "";

  constructor(parts: AgreementParts, step: Step) {
    this.#parts = parts;
    this.#step = step;
    this.#next();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  #next(): void {
    if (this.#stop.signal.aborted || this.#step.isDone()) return;
    this.#timer = setTimeout(() => {
      this.#check()
        // Without a leader, or with another one, the next check sees what has come of it.
        .catch(() => undefined)
        .finally(() => this.#next());
    }, CHECK_MS);
  }

  async #check(): Promise<void> {
    const { leads, others, log } = this.#parts;
    if (!leads() || this.#step.isDone() || !this.#step.isDue()) return;
    const members = others();
    const answers = await Promise.all(members.map((member) => this.#ask(member)));
    const waitsFor = members.flatMap(({ name }, at) =>
      this.#step.accepts(answers[at]) ? [] : [name],
    );
    if (waitsFor.length === 0) {
      await this.#step.take(answers);
      return;
    }
    if (waitsFor.join() === this.#told) return;
    this.#told = waitsFor.join();
    log.info({ waitsFor }, this.#step.waitText);
  }

  async #ask(member: Member): Promise<MemberAnswer> {
    const { identity, credentials } = this.#parts;
    const { name, nonce, id, cluster } = identity;
    const peer = new Peer(member.address, credentials);
    try {
      const limits = { deadlineMs: ASK_DEADLINE_MS, signal: this.#stop.signal };
      const reply = await peer.unary(introduceMethod, { name, nonce, member: id }, limits);
      return reply.nonce === member.nonce && reply.cluster === cluster ? reply : undefined;
    } catch {
      return undefined;
    } finally {
      peer.close();
    }
  }
}
