import type { Member } from "@heddle/consensus/ports";
import { Dice } from "./dice.ts";
import { SimulatedMember, type World } from "./simulated-member.ts";

/** How often the operator looks after the group. */
const INTERVAL_US = 60_000;

/**
 * Whoever runs the cluster: starts what is down, puts new members in the place of lost ones, and
 * takes the group from one size to another. It knows what its members tell it, and asks again where
 * it was not told the outcome.
 */
export class Operator {
  /** How many voters there should be. */
  wanted: number;
  /** Changes that were answered with success. */
  changes = 0;
  readonly #world: World;
  readonly #dice: Dice;
  /** Masters on their way into the group, by name; the nonce tells one from its predecessor. */
  readonly #joining = new Map<string, Member>();
  #busy = false;
  /** True after a change that may still be made, until a later one is answered with success. */
  #unsure = false;
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

  /** True while the group is as it should be, as far as its leader knows. */
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

  /** True while no change of the members is asked for, or may yet be made. */
  get isStill(): boolean {
    return this.isSettled && !this.#unsure;
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
    // A disk may have failed at the very end; its member is started again.
    if (this.#world.isOver()) for (const member of this.present) member.start();
    const leader = this.leader();
    if (!leader || this.#busy) return;
    for (const [name, member] of this.#joining) {
      if (this.#join(leader.member, name, member)) return;
    }
    const lost = leader.status.members.find(({ id }) => members.get(id)?.state === "lost");
    if (lost) this.#expect(lost.name);
    else if (this.#joining.size > 0) return;
    else if (leader.status.members.length < this.wanted) this.#expect(this.#freeName());
    else if (leader.status.members.length > this.wanted) this.#shrink(leader.member);
  }

  #freeName(): string {
    const names = new Set(this.present.map(({ member }) => member.name));
    for (let i = 1; ; i++) if (!names.has(`m${i}`)) return `m${i}`;
  }

  /** A new machine of that name shall join; it has no number yet. */
  #expect(name: string): void {
    const nonce = `nonce-${this.#nextNonce++}`;
    this.#joining.set(name, { id: 0, name, address: `${name}:1`, nonce });
  }

  /** Asks a member for the new one's place; true if that is under way. */
  #join(via: SimulatedMember, name: string, joining: Member): boolean {
    const replica = via.replica;
    if (!replica) return false;
    // While a change is under way there may be two: one that leaves, and after it its successor.
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
      this.#unsure = outcome !== "done";
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
   * Ends what was removed, once a voter that stays has applied that it is complete. The leader that
   * removes itself knows of it first, and a learner may: those that stay may still need its vote.
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
