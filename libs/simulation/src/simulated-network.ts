import type { Message } from "@heddle/raft/core/message";
import type { Dice } from "./dice.ts";
import type { EventQueue } from "./event-queue.ts";

/** The faults of the network. */
export interface NetworkFaults {
  loss: number;
  duplication: number;
  /** The longest delay of a message, microseconds; most are short. Later ones overtake it. */
  maxDelayUs: number;
}

/** The shortest delay of a message. */
const MIN_DELAY_US = 200;
/** The messages queued on one clogged link; more are lost. */
const MAX_CLOGGED = 200;

interface Link {
  isCut: boolean;
  /** Nothing arrives before this time, and then all of it at once. */
  cloggedUntilUs: number;
  clogged: number;
}

/** Carries messages between members, with the faults that are set. */
export class SimulatedNetwork {
  readonly faults: NetworkFaults = { loss: 0, duplication: 0, maxDelayUs: 1000 };
  readonly #links = new Map<number, Link>();
  readonly #queue: EventQueue;
  readonly #dice: Dice;
  readonly #deliver: (message: Message) => void;

  constructor(queue: EventQueue, dice: Dice, deliver: (message: Message) => void) {
    this.#queue = queue;
    this.#dice = dice;
    this.#deliver = deliver;
  }

  /** False if the sender may know that it is lost. */
  send(message: Message): boolean {
    const link = this.#link(message.from, message.to);
    if (link.isCut) return this.#dice.chance(0.5);
    const { loss, duplication } = this.faults;
    // A duplicated proposal would be made twice; no transport may do that (see Transport).
    const isRepeated = this.#dice.chance(duplication) && message.type !== "MsgProp";
    const copies = isRepeated ? 2 : 1;
    for (let i = 0; i < copies; i++) {
      if (!this.#dice.chance(loss)) this.#carry(message, link);
    }
    return true;
  }

  #carry(message: Message, link: Link): void {
    const delayUs = this.delayUs();
    const clogUs = link.cloggedUntilUs - this.#queue.nowUs;
    if (clogUs <= 0) link.clogged = 0;
    else if (++link.clogged > MAX_CLOGGED) return;
    this.#queue.after(Math.max(0, clogUs) + delayUs, () => {
      if (!link.isCut) this.#deliver(message);
    });
  }

  delayUs(): number {
    return this.#dice.skewed(MIN_DELAY_US, this.faults.maxDelayUs);
  }

  /** True if no message gets through from one member to another. */
  isCut(from: number, to: number): boolean {
    return this.#link(from, to).isCut;
  }

  setCut(from: number, to: number, isCut: boolean): void {
    this.#link(from, to).isCut = isCut;
  }

  clog(from: number, to: number, untilUs: number): void {
    this.#link(from, to).cloggedUntilUs = untilUs;
  }

  mend(): void {
    for (const link of this.#links.values()) {
      link.isCut = false;
      link.cloggedUntilUs = 0;
    }
  }

  #link(from: number, to: number): Link {
    const key = from * 1024 + to;
    let link = this.#links.get(key);
    if (!link) {
      link = { isCut: false, cloggedUntilUs: 0, clogged: 0 };
      this.#links.set(key, link);
    }
    return link;
  }
}
