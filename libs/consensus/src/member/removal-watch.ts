import type { IntroductionReply__Output } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { introduceMethod } from "@heddle/rpc/proto";
import type { Member } from "../ports.ts";
import type { FullIdentity } from "./identity.ts";

/** Two checks without a leader, one after the other, are about as long as an election takes. */
const CHECK_MS = 1_000;
const ASK_DEADLINE_MS = 1_500;

export interface RemovalWatchOptions {
  readonly identity: FullIdentity;
  readonly credentials: NodeCredentials;
  /** Whether this member hears from a leader: then it belongs to the group. */
  readonly hasLeader: () => boolean;
  /** The other members, each at the address where it is now. */
  readonly others: () => readonly Member[];
  readonly onRemoved: () => void;
}

/**
 * Finds out that this member was removed from its group. The others stop talking to a member that
 * they have removed, often before it hears of it; so one that hears from no leader asks them. Only a
 * member that votes is believed: of two voters the one that stays may need this one's vote until it
 * has applied the removal itself, however long a learner has known of it.
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

  /** Asks the other members; true once one that votes knows of the removal and needs this one no more. */
  async isConfirmed(): Promise<boolean> {
    const asked = this.#options.others().map(({ address }) => this.#wasRemoved(address));
    return (await Promise.all(asked)).includes(true);
  }

  /** What one member knows has happened: it tells of changes that it has applied, which stay. */
  async #wasRemoved(address: string): Promise<boolean> {
    const { identity, credentials } = this.#options;
    const { name, nonce, id: member } = identity;
    const peer = new Peer(address, credentials);
    try {
      const limits = { deadlineMs: ASK_DEADLINE_MS };
      const reply = await peer.unary(introduceMethod, { name, nonce, member }, limits);
      return reply.votes && isWithout(reply, identity);
    } catch {
      return false; // Whoever does not answer is asked again.
    } finally {
      peer.close();
    }
  }
}

/** Whether the group of the reply has had this member and has it no more. */
function isWithout(reply: IntroductionReply__Output, { cluster, id }: FullIdentity): boolean {
  const { members, lastId } = reply;
  if (reply.cluster !== cluster || members.length === 0 || id > lastId) return false;
  return !members.some((member) => member.id === id);
}
