import { AppError } from "@heddle/base/errors";
import type { ProposalWaiter } from "../proposals/pending-proposals.ts";

/** A change that has taken effect and is not complete. */
interface Unfinished {
  readonly sequence: number;
  readonly deadlineTick: number;
  readonly waiter: ProposalWaiter<void>;
}

/**
 * The membership changes of this replica's callers that went into a joint configuration which is
 * not left yet. A majority of the earlier members is still needed: a caller with an early answer
 * might stop removed ones, and so the group.
 */
export class JointChanges {
  readonly #isJoint: () => boolean;
  #open: Unfinished[] = [];

  constructor(isJoint: () => boolean) {
    this.#isJoint = isJoint;
  }

  /** A waiter for the change's entry; it resolves `waiter` when the change is complete. */
  complete(waiter: ProposalWaiter<void>, deadlineTick: number): ProposalWaiter<void> {
    return {
      resolve: (_, sequence) => {
        this.#open.push({ sequence, deadlineTick, waiter });
        this.membersChanged();
      },
      reject: (error, sequence) => waiter.reject(error, sequence),
    };
  }

  /** To be called whenever the configuration may be another one. */
  membersChanged(): void {
    if (this.#isJoint()) return;
    for (const { waiter, sequence } of this.#open.splice(0)) waiter.resolve(undefined, sequence);
  }

  rejectExpired(tick: number): void {
    const late = this.#open.filter(({ deadlineTick }) => deadlineTick <= tick);
    this.#open = this.#open.filter(({ deadlineTick }) => deadlineTick > tick);
    for (const { waiter, sequence } of late) waiter.reject(incomplete("not in time"), sequence);
  }

  rejectAll(why: string): void {
    for (const { waiter, sequence } of this.#open.splice(0)) {
      waiter.reject(incomplete(why), sequence);
    }
  }
}

function incomplete(why: string): AppError {
  const message = `The change of the masters is made but was not seen to be complete: ${why}. It needs a majority of the masters before it and one of those after it. Start what is down and stop none that was removed while \`heddle cluster members\` still lists it; do not ask for the change again.`;
  return new AppError("outcome_unknown", message);
}
