import type { Member } from "../ports.ts";
import { type AskingMember, askMember } from "./ask-member.ts";

/** Two checks without a leader, one after the other, are about as long as an election takes. */
const CHECK_MS = 1_000;

export interface RemovalWatchOptions extends AskingMember {
  /** True while this member has a leader: then it belongs to the group. */
  readonly hasLeader: () => boolean;
  /** The other members, each at the address where it is now. */
  readonly others: () => readonly Member[];
  readonly onRemoved: () => void;
}

/**
 * Detects that this member was removed from its group. The others stop sending to a removed member,
 * often before it learns of the removal, so a member without a leader asks them.
 * Only voters are believed: of two voters, the remaining one may need this one's vote until it has applied the removal.
 */
export class RemovalWatch {
  readonly #options: RemovalWatchOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #stop = new AbortController();
  #checksWithoutLeader = 0;
  #asking = false;

  constructor(options: RemovalWatchOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#check(), CHECK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#stop.abort();
  }

  async #check(): Promise<void> {
    const { hasLeader, onRemoved } = this.#options;
    this.#checksWithoutLeader = hasLeader() ? 0 : this.#checksWithoutLeader + 1;
    if (this.#checksWithoutLeader < 2 || this.#asking) return;
    this.#asking = true;
    const wasRemoved = await this.isConfirmed();
    this.#asking = false;
    if (!wasRemoved || this.#stop.signal.aborted) return;
    this.stop();
    onRemoved();
  }

  /** Asks the other members; true once one that votes knows of the removal and needs this no longer a member. */
  async isConfirmed(): Promise<boolean> {
    const asked = this.#options.others().map(({ address }) => this.#wasRemoved(address));
    return (await Promise.all(asked)).includes(true);
  }

  /** Members report only changes that they have applied, which are committed. */
  async #wasRemoved(address: string): Promise<boolean> {
    const reply = await askMember(this.#options, address);
    if (!reply?.votes || reply.members.length === 0) return false;
    const { id } = this.#options.identity;
    return id <= reply.lastId && !reply.members.some((member) => member.id === id);
  }
}
