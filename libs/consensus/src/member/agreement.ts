import type { Log } from "@heddle/observability/logger";
import type { Member } from "../ports.ts";
import { type AskingMember, askMember, type MemberAnswer } from "./ask-member.ts";

const CHECK_MS = 250;

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

export interface AgreementParts extends AskingMember {
  readonly isActiveLeader: () => boolean;
  /** The other members, voters and learners, each at the address where it is now. */
  readonly others: () => readonly Member[];
  readonly log: Log;
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
  #lastLogged = "";

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
        // Without a leader, or with another one, the next check sees the outcome.
        .catch(() => undefined)
        .finally(() => this.#next());
    }, CHECK_MS);
  }

  async #check(): Promise<void> {
    const { isActiveLeader, others, log } = this.#parts;
    if (!isActiveLeader() || this.#step.isDone() || !this.#step.isDue()) return;
    const members = others();
    const answers = await Promise.all(members.map((member) => this.#ask(member)));
    const waitsFor = members.flatMap(({ name }, at) =>
      this.#step.accepts(answers[at]) ? [] : [name],
    );
    if (waitsFor.length === 0) {
      await this.#step.take(answers);
      return;
    }
    if (waitsFor.join() === this.#lastLogged) return;
    this.#lastLogged = waitsFor.join();
    log.info({ waitsFor }, this.#step.waitText);
  }

  /** Undefined too where another master answers at the member's address. */
  async #ask({ address, nonce }: Member): Promise<MemberAnswer> {
    const reply = await askMember(this.#parts, address, this.#stop.signal);
    return reply?.nonce === nonce ? reply : undefined;
  }
}
