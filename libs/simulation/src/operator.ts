import type { Member } from "@heddle/consensus/ports";
import { Dice } from "./dice.ts";
import { SimulatedMember, type World } from "./simulated-member.ts";

/** The interval between the operator's checks of the group. */
const INTERVAL_US = 60_000;

/**
 * The cluster's operator: starts members that are down, replaces lost ones, and resizes the group.
 * It knows only what members report, and repeats a change whose outcome it does not know.
 */
export class Operator {
  /** The wanted number of voters. */
  wanted: number;
  /** Changes that succeeded. */
  changes = 0;
  readonly #world: World;
  readonly #dice: Dice;
  /**
   * Masters that are joining the group, by name; the nonce distinguishes one from its predecessor.
   */
  readonly #joining = new Map<string, Member>();
  #busy = false;
  /** True while a change has an unknown outcome, until a later one succeeds. */
  #isOutcomeUnknown = false;
  #nextNonce = 1;

  constructor(world: World, wanted: number) {
    this.#world = world;
    this.wanted = wanted;
    this.#dice = new Dice(world.seed, "operator");
  }

  start(): void {
    this.#world.queue.after(INTERVAL_US * this.#dice.between(0.5, 1.5), () => {
      this.#act();
      this.start();
    });
  }

  /** Members that should run: those not lost and not gone. */
  get present(): SimulatedMember[] {
    return [...this.#world.members.values()].filter(
      ({ state }) => state !== "lost" && state !== "gone",
    );
  }

  /** True while the group has its wanted members, by its leader's view. */
  get isSettled(): boolean {
    const leader = this.leader();
    if (!leader || this.#joining.size > 0 || this.#busy) return false;
    const { members } = leader.status;
    return (
      members.length === this.wanted &&
      members.every(({ id, votes }) => votes && this.present.some((other) => other.id === id)) &&
      this.present.length === this.wanted
    );
  }

  /** True while no change of the members is in progress or may still be made. */
  get isStill(): boolean {
    return this.isSettled && !this.#isOutcomeUnknown;
  }

  /** The running leader of the highest term. */
  leader() {
    const leaders = this.present
      .filter(({ state }) => state === "running")
      .map((member) => ({ member, status: member.replica?.status() }))
      .filter(({ status }) => status?.role === "leader")
      .sort((a, b) => (b.status?.term ?? 0) - (a.status?.term ?? 0));
    const first = leaders[0];
    return first?.status && { member: first.member, status: first.status };
  }

  #act(): void {
    const { members } = this.#world;
    this.#endRemoved();
    // A disk may have failed at the very end; its member is restarted.
    if (this.#world.isEnded()) for (const member of this.present) member.start();
    const leader = this.leader();
    if (!leader || this.#busy) return;
    for (const [name, member] of this.#joining) {
      if (this.#join(leader.member, name, member)) return;
    }
    const lost = leader.status.members.find(({ id }) => members.get(id)?.state === "lost");
    if (lost) this.#addJoining(lost.name);
    else if (this.#joining.size > 0) return;
    else if (leader.status.members.length < this.wanted) this.#addJoining(this.#freeName());
    else if (leader.status.members.length > this.wanted) this.#shrink(leader.member);
  }

  #freeName(): string {
    const names = new Set(this.present.map(({ member }) => member.name));
    for (let i = 1; ; i++) if (!names.has(`m${i}`)) return `m${i}`;
  }

  /** Registers a new machine of that name that is to join; it has no number yet. */
  #addJoining(name: string): void {
    const nonce = `nonce-${this.#nextNonce++}`;
    this.#joining.set(name, { id: 0, name, address: `${name}:1`, nonce });
  }

  /** Requests the new member's addition; true if that is in progress. */
  #join(via: SimulatedMember, name: string, joining: Member): boolean {
    const replica = via.replica;
    if (!replica) return false;
    // During a change there may be two: one that leaves, and then its successor.
    const namesake = replica.members.findLast((member) => member.name === name);
    if (namesake?.nonce === joining.nonce) {
      this.#joining.delete(name);
      this.#startNew(namesake);
      return false;
    }
    const id = replica.nextMemberId;
    const changes = [
      ...(namesake ? [{ type: "removeNode" as const, nodeId: namesake.id }] : []),
      { type: "addLearnerNode" as const, nodeId: id },
    ];
    this.#change(via, changes, [{ ...joining, id }]);
    return true;
  }

  #startNew(member: Member): void {
    const started = new SimulatedMember(this.#world, member, undefined);
    this.#world.members.set(member.id, started);
    started.start();
  }

  #shrink(via: SimulatedMember): void {
    const ids = via.replica?.members.map(({ id }) => id) ?? [];
    const most = ids.length - this.wanted;
    const count = this.#dice.chance(0.5) ? Math.max(1, most) : 1;
    const changes = [];
    for (let left = [...ids]; changes.length < count; ) {
      const nodeId = this.#dice.pick(left);
      left = left.filter((id) => id !== nodeId);
      changes.push({ type: "removeNode" as const, nodeId });
    }
    this.#change(via, changes, []);
  }

  #change(
    via: SimulatedMember,
    changes: Parameters<NonNullable<SimulatedMember["replica"]>["changeMembers"]>[0],
    members: readonly Member[],
  ): void {
    this.#busy = true;
    const what = changes.map(({ type, nodeId }) => `${type} ${nodeId}`).join(", ");
    this.#world.trace(() => `operator asks member ${via.id}: ${what}`);
    const done = (outcome: string) => {
      via.onEnd.delete(onEnd);
      this.#busy = false;
      this.#isOutcomeUnknown = outcome !== "done";
      this.#world.trace(() => `operator: ${what}: ${outcome}`);
    };
    const onEnd = () => done("the member ended");
    via.onEnd.add(onEnd);
    via.replica?.changeMembers(changes, members).then(
      () => {
        this.changes++;
        done("done");
      },
      (error: Error) => done(error.message),
    );
  }

  /**
   * Stops removed members, once a remaining voter has applied the end of the removal. The leader
   * that removes itself applies it first, and a learner may: the remaining voters may still need
   * its vote.
   */
  #endRemoved(): void {
    const staying = this.present.filter(
      ({ id, state, replica }) =>
        state === "running" &&
        replica?.status().members.some((member) => member.id === id && member.votes),
    );
    for (const member of this.present) {
      // One with a higher number may be newer than what the others have applied.
      const isRemoved = staying.some(
        ({ replica }) =>
          replica &&
          member.id < replica.nextMemberId &&
          !replica.members.some(({ id }) => id === member.id),
      );
      if (isRemoved && this.#dice.chance(0.5)) member.end("gone");
    }
  }
}
