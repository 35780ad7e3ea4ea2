import { priorityNumber } from "@heddle/contracts/call-priority";
import fc from "fast-check";
import { expect, test } from "vitest";
import { FairQueue } from "./fair-queue.ts";

const [BATCH, NORMAL] = [priorityNumber("batch"), priorityNumber("normal")];

interface Ticket {
  readonly fairKey: string;
  readonly priority: number;
  readonly order: number;
}

function drain(queue: FairQueue<Ticket>): Ticket[] {
  const out: Ticket[] = [];
  for (let ticket = queue.peek(); ticket; ticket = queue.peek()) {
    queue.remove(ticket);
    out.push(ticket);
  }
  return out;
}

test("fair queue: keys take turns, so a busy key does not block another", () => {
  const queue = new FairQueue<Ticket>();
  for (const order of [0, 1, 2]) queue.push({ fairKey: "many", priority: 0, order });
  queue.push({ fairKey: "few", priority: 0, order: 3 });
  expect(drain(queue).map(({ fairKey }) => fairKey)).toEqual(["many", "few", "many", "many"]);
});

test("fair queue: every key has a head; the key with the most gives up its last", () => {
  const queue = new FairQueue<Ticket>();
  for (const order of [0, 1, 2]) queue.push({ fairKey: "many", priority: 0, order });
  queue.push({ fairKey: "few", priority: 0, order: 3 });
  expect(queue.heads().map(({ order }) => order)).toEqual([0, 3]);
  expect(queue.crowding("new", 0)?.order).toBe(2);
  expect(queue.crowding("few", 0)?.order).toBe(2);
  expect(queue.crowding("many", 0)).toBeUndefined();
  expect(queue.crowding("new", -1)).toBeUndefined();
  queue.push({ fairKey: "few", priority: 0, order: 4 });
  expect(queue.crowding("few", 0)).toBeUndefined();
});

test("fair queue: a ticket that has waited long goes before later ones, until it left", () => {
  const queue = new FairQueue<Ticket & { readonly arrivedMs: number }>();
  const old = { fairKey: "old", priority: BATCH, order: 0, arrivedMs: 0 };
  const later = { fairKey: "new", priority: NORMAL, order: 1, arrivedMs: 3_600_000 };
  for (const ticket of [old, later]) queue.push(ticket);
  queue.age(0);
  expect([queue.peek(), queue.positionOf(old)]).toEqual([later, 2]);
  queue.age(999);
  queue.age(3_600_000);
  queue.age(3_600_000);
  expect(queue.tickets()).toHaveLength(2);
  expect([queue.peek(), queue.positionOf(old)]).toEqual([old, 1]);
  expect(queue.remove(old)).toBe(true);
  queue.push(old);
  expect([queue.peek(), queue.positionOf(old)]).toEqual([later, 2]);
});

test("fair queue: a raised ticket goes after those that had its priority before", () => {
  const queue = new FairQueue<Ticket & { readonly arrivedMs: number }>();
  const raised = { fairKey: "a", priority: BATCH, order: 0, arrivedMs: 0 };
  const present = { fairKey: "a", priority: NORMAL, order: 1, arrivedMs: 29_999 };
  for (const ticket of [raised, present]) queue.push(ticket);
  queue.age(30_000);
  expect(queue.tickets()).toEqual([present, raised]);
});

test("fair queue: a ticket without a time of arrival keeps its priority", () => {
  const queue = new FairQueue<Ticket & { readonly arrivedMs?: number }>();
  const timeless = { fairKey: "a", priority: BATCH, order: 0 };
  const later = { fairKey: "b", priority: NORMAL, order: 1, arrivedMs: 3_600_000 };
  for (const ticket of [timeless, later]) queue.push(ticket);
  queue.age(3_600_000);
  expect([queue.peek(), queue.positionOf(timeless)]).toEqual([later, 2]);
});

test("fair queue: tickets are checked once a second", () => {
  const queue = new FairQueue<Ticket & { readonly arrivedMs: number }>();
  const old = { fairKey: "old", priority: BATCH, order: 0, arrivedMs: -3_600_000 };
  const later = { fairKey: "new", priority: NORMAL, order: 1, arrivedMs: 0 };
  queue.age(0);
  for (const ticket of [old, later]) queue.push(ticket);
  queue.age(999);
  expect(queue.peek()).toBe(later);
  queue.age(1_000);
  expect(queue.peek()).toBe(old);
});

test("fair queue: by priority, in order within a key, keys in turn", () => {
  const spec = fc.array(
    fc.record({ fairKey: fc.constantFrom("a", "b", "c"), priority: fc.nat(2) }),
    { maxLength: 20 },
  );
  fc.assert(
    fc.property(spec, (tickets) => {
      const queue = new FairQueue<Ticket>();
      for (const [order, ticket] of tickets.entries()) queue.push({ ...ticket, order });
      const places = new Map(queue.tickets().map((each) => [each, queue.positionOf(each)]));
      const out = drain(queue);
      expect(out.map((ticket) => places.get(ticket))).toEqual(out.map((_, index) => index + 1));
      expect(out).toHaveLength(tickets.length);
      expect(queue.size).toBe(0);
      for (const [index, ticket] of out.entries()) {
        const previous = out[index - 1];
        if (!previous) continue;
        expect(ticket.priority).toBeLessThanOrEqual(previous.priority);
        if (ticket.fairKey !== previous.fairKey || ticket.priority !== previous.priority) continue;
        expect(ticket.order).toBeGreaterThan(previous.order);
        const others = out.slice(index).filter(({ priority }) => priority === ticket.priority);
        expect(others.every(({ fairKey }) => fairKey === ticket.fairKey)).toBe(true);
      }
    }),
  );
});

test("fair queue: a ticket removed before its turn keeps its key's turn", () => {
  const queue = new FairQueue<Ticket>();
  const tickets = [0, 1].map((order) => ({ fairKey: "a", priority: 0, order }));
  const other = { fairKey: "b", priority: 0, order: 2 };
  for (const ticket of [...tickets, other]) queue.push(ticket);
  expect(queue.remove(tickets[1] as Ticket)).toBe(true);
  expect(queue.remove(tickets[1] as Ticket)).toBe(false);
  expect(queue.size).toBe(2);
  expect(queue.tickets()).toEqual([tickets[0], other]);
  expect(queue.peek()).toBe(tickets[0]);
});

test("fair queue: an unknown ticket is not removed", () => {
  const queue = new FairQueue<Ticket>();
  const ticket = { fairKey: "a", priority: 0, order: 0 };
  expect(queue.remove(ticket)).toBe(false);
  queue.push(ticket);
  expect(queue.remove({ ...ticket, fairKey: "b" })).toBe(false);
  expect(queue.remove({ ...ticket, priority: 1 })).toBe(false);
  expect(queue.remove({ ...ticket })).toBe(false);
  expect(queue.size).toBe(1);
});

test("fair queue: an empty one has no head, no ticket and no victim", () => {
  const queue = new FairQueue<Ticket>();
  expect([queue.peek(), queue.heads(), queue.tickets()]).toEqual([undefined, [], []]);
  expect(queue.crowding("a", 0)).toBeUndefined();
});

test("fair queue: heads have the highest priority, victims the lowest", () => {
  const queue = new FairQueue<Ticket>();
  for (const order of [0, 1, 2]) queue.push({ fairKey: "low", priority: 0, order });
  for (const order of [3, 4, 5, 6]) queue.push({ fairKey: "high", priority: 1, order });
  expect(queue.heads().map(({ order }) => order)).toEqual([3]);
  expect(queue.crowding("new", 1)?.order).toBe(2);
  // One of two stays, because the other key would then have as many.
  for (const ticket of queue.tickets().filter(({ order }) => order === 2)) queue.remove(ticket);
  expect(queue.crowding("new", 0)?.order).toBe(1);
  for (const ticket of queue.tickets().filter(({ order }) => order === 1)) queue.remove(ticket);
  expect(queue.crowding("new", 0)).toBeUndefined();
});
