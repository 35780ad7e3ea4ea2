import { createMessage } from "@heddle/raft/core/message";
import { expect, test } from "vitest";
import { isRefusal, ProposalForwarder, refusalOf } from "./proposal-forwarder.ts";

const entry = { term: 0, index: 0, type: "EntryNormal", data: new Uint8Array(3) } as const;
const LEADER = { lead: 2, term: 5 };

const handOvers = (id = 7, incarnation = 3) =>
  new ProposalForwarder({ id, incarnation, heartbeatTicks: 4 });

/** What the member to which a batch went sends back. */
const sentBack = (of: ProposalForwarder) => {
  const refusal = refusalOf(of.next([entry]).message);
  if (!refusal) throw new Error("it was not sent back");
  return refusal;
};

test("hand-over: each batch goes out under the next number, from this member to itself", () => {
  const own = handOvers();
  const { number, message } = own.next([entry]);
  expect([number, own.next([entry]).number]).toEqual([1, 2]);
  expect(message).toMatchObject({ type: "MsgProp", from: 7, to: 7, entries: [entry] });
});

test("hand-over: a refusal goes to whom the batch came from, without its entries", () => {
  const refusal = sentBack(handOvers());
  expect(refusal).toMatchObject({ type: "MsgProp", to: 7, reject: true, entries: [] });
  expect(isRefusal(refusal)).toBe(true);
  expect(refusalOf(refusal)).toBeUndefined();
});

test("hand-over: other messages and proposals without a number are no refusals", () => {
  const { message } = handOvers().next([entry]);
  expect(isRefusal(message)).toBe(false);
  const refusal = sentBack(handOvers());
  expect(isRefusal({ ...refusal, type: "MsgApp" })).toBe(false);
  expect(isRefusal({ ...refusal, context: new Uint8Array(1) })).toBe(false);
  expect(refusalOf({ ...message, type: "MsgApp" })).toBeUndefined();
  expect(refusalOf(createMessage({ type: "MsgProp", to: 1, entries: [entry] }))).toBeUndefined();
});

test("hand-over: a leader that refused gets nothing more for a heartbeat", () => {
  const own = handOvers();
  expect(own.isHeld(LEADER, 10)).toBe(false);
  expect(own.takeBack(sentBack(own), LEADER, 10)).toBe(1);
  expect([own.isHeld(LEADER, 13), own.isHeld(LEADER, 14)]).toEqual([true, false]);
  expect(own.isHeld({ ...LEADER, term: 6 }, 10)).toBe(false);
  expect(own.isHeld({ ...LEADER, lead: 3 }, 10)).toBe(false);
});

test("hand-over: a refusal of another process's batch means nothing", () => {
  for (const other of [handOvers(8), handOvers(7, 2)]) {
    const own = handOvers();
    expect(own.takeBack(sentBack(other), LEADER, 10)).toBeUndefined();
    expect(own.isHeld(LEADER, 10)).toBe(false);
  }
});
