import fc from "fast-check";
import { expect, test } from "vitest";
import { FairQueue } from "./fair-queue.ts";

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

test("keys take turns, so that one with many waiting does not hold up another", () => {
  const queue = new FairQueue<Ticket>(10);
  for (const order of [0, 1, 2]) queue.push({ fairKey: "many", priority: 0, order });
  queue.push({ fairKey: "few", priority: 0, order: 3 });
  expect(drain(queue).map(({ fairKey }) => fairKey)).toEqual(["many", "few", "many", "many"]);
});

test("every key has a head, and a key that crowds the queue gives up its last", () => {
  const queue = new FairQueue<Ticket>(10);
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

test("a full queue takes nothing more", () => {
  const queue = new FairQueue<Ticket>(1);
  expect(queue.push({ fairKey: "a", priority: 0, order: 0 })).toBe(true);
  expect(queue.push({ fairKey: "b", priority: 9, order: 1 })).toBe(false);
  expect(queue.size).toBe(1);
});

test("all leave once: by priority, in order within a key, and no key twice while another waits", () => {
  const spec = fc.array(
    fc.record({ fairKey: fc.constantFrom("a", "b", "c"), priority: fc.nat(2) }),
    { maxLength: 20 },
  );
  fc.assert(
    fc.property(spec, (tickets) => {
      const queue = new FairQueue<Ticket>(20);
      for (const [order, ticket] of tickets.entries()) queue.push({ ...ticket, order });
      const out = drain(queue);
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
