import { createMessage, type Message } from "@heddle/raft/core/message";
import type { Entry } from "@heddle/raft/log/entry";
import { PROPOSAL_HEADER_BYTES, sequenceOf, uint32, writeProposalId } from "./entry-codec.ts";

/**
 * The batches of proposals that this replica has handed to Raft. Each carries a number in its context.
 * A member that neither appended nor forwarded a batch returns it by that number, and it is proposed again.
 * A batch goes to one member at a time, so a returned batch is in no log.
 * Late and duplicate refusals carry an old number and are ignored.
 */
export class ProposalForwarder {
  readonly #own: { readonly node: number; readonly incarnation: number };
  readonly #holdTicks: number;
  #last = 0;
  /** Who sent one back last, and until when it gets no other. */
  #refuser: (Leadership & { readonly untilTick: number }) | undefined;

  constructor(replica: { id: number; incarnation: number; heartbeatTicks: number }) {
    this.#own = { node: replica.id, incarnation: replica.incarnation };
    this.#holdTicks = replica.heartbeatTicks;
  }

  /** The next batch as a message to this replica's own Raft node, and its number. */
  next(entries: readonly Entry[]): { readonly number: number; readonly message: Message } {
    const number = ++this.#last;
    const context = new Uint8Array(PROPOSAL_HEADER_BYTES);
    writeProposalId(new DataView(context.buffer), 0, { ...this.#own, sequence: number });
    const { node } = this.#own;
    const message = createMessage({ type: "MsgProp", to: node, from: node, entries, context });
    return { number, message };
  }

  /**
   * The number of a batch that was sent back, undefined where it is of another process. For a while the
   * leader gets nothing more: it would but send it back.
   */
  takeBack(refusal: Message, { lead, term }: Leadership, tick: number): number | undefined {
    const number = sequenceOf(refusal.context, this.#own);
    if (number === undefined) return undefined;
    this.#refuser = { lead, term, untilTick: tick + this.#holdTicks };
    return number;
  }

  isHeld({ lead, term }: Leadership, tick: number): boolean {
    const refuser = this.#refuser;
    if (!refuser || refuser.lead !== lead || refuser.term !== term) return false;
    return tick < refuser.untilTick;
  }
}

interface Leadership {
  readonly lead: number;
  readonly term: number;
}

/** True for what `refusalOf` makes. */
export function isRefusal({ type, reject, context }: Message): boolean {
  return type === "MsgProp" && reject && context.byteLength === PROPOSAL_HEADER_BYTES;
}

/** Sends a batch back to the member that it came from; undefined where it has no number. */
export function refusalOf({ type, context, reject }: Message): Message | undefined {
  if (type !== "MsgProp" || reject || context.byteLength !== PROPOSAL_HEADER_BYTES)
    return undefined;
  return createMessage({ type: "MsgProp", to: uint32(context, 0), reject: true, context });
}
