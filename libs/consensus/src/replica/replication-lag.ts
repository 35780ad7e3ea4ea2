import type { Message } from "@heddle/raft/core/message";
import type { Status } from "@heddle/raft/raw-node";

/** What one log must reach of another that it follows, and since when. */
interface Course {
  /** What it must reach; a new goal is set once it is reached. */
  readonly goal: number;
  readonly sinceTick: number;
}

/** A goal that is not reached within this many election timeouts is no short pause. */
const TIMEOUT_ELECTIONS = 2;

/**
 * Detects replicas that do not catch up: a follower itself, a leader each member.
 * Raft limits a heartbeat's commit index to what the follower acknowledged, which hides a large lag.
 * So heartbeats carry the leader's whole commit index as well.
 */
export class ReplicationLag {
  readonly #timeoutTicks: number;
  #own: Course = { goal: 0, sinceTick: 0 };
  readonly #members = new Map<number, Course>();

  constructor(electionTicks: number) {
    this.#timeoutTicks = TIMEOUT_ELECTIONS * electionTicks;
  }

  /** The messages of a member at that commit index, with it in the heartbeats, where Raft has no use for `index`. */
  annotate(messages: readonly Message[], commit: number): readonly Message[] {
    if (!messages.some(({ type }) => type === "MsgHeartbeat")) return messages;
    return messages.map((message) =>
      message.type === "MsgHeartbeat" ? { ...message, index: commit } : message,
    );
  }

  /**
   * Records the commit index of a heartbeat; members of an earlier version send 0, which has no effect.
   */
  onHeartbeat({ type, index }: Message, applied: number, tick: number): void {
    if (type === "MsgHeartbeat")
      this.#own = next(this.#own, { goal: index, reached: applied }, tick);
  }

  /** Records the progress of a leader's members; does nothing on other members. */
  update({ commit, progress }: Pick<Status, "commit" | "progress">, tick: number): void {
    for (const id of this.#members.keys()) if (!progress.has(id)) this.#members.delete(id);
    for (const [id, { match }] of progress) {
      const course = this.#members.get(id) ?? { goal: 0, sinceTick: 0 };
      this.#members.set(id, next(course, { goal: commit, reached: match }, tick));
    }
  }

  /** True where this member has long not applied what it knows to be committed. */
  isBehind(applied: number, tick: number): boolean {
    return this.#isLate(this.#own, applied, tick);
  }

  /** On a leader: true for a member whose log has long lacked what is committed. */
  isMemberBehind(id: number, match: number, tick: number): boolean {
    const course = this.#members.get(id);
    return course !== undefined && this.#isLate(course, match, tick);
  }

  #isLate({ goal, sinceTick }: Course, reached: number, tick: number): boolean {
    return reached < goal && tick - sinceTick > this.#timeoutTicks;
  }
}

function next(
  course: Course,
  { goal, reached }: { readonly goal: number; readonly reached: number },
  tick: number,
): Course {
  return reached >= course.goal ? { goal, sinceTick: tick } : course;
}
