// holds: sim-checker

import { seededRandom } from "@heddle/base/random";
import { describe, expect, it } from "vitest";
import { type Action, checkLinearizability, type Operation } from "./linearizability.ts";

const write = (value: string): Action => ({ type: "write", value });
const append = (value: string): Action => ({ type: "append", value });
const read = (...values: string[]): Action => ({ type: "read", values });
const create = (value: string, created?: boolean): Action => ({ type: "create", value, created });
const remove = (removed?: boolean): Action => ({ type: "remove", removed });

/** A call between two times, or one without a return. */
function call(calledAt: number, returnedAt: number | undefined, action: Action): Operation {
  return { client: `c${calledAt}`, key: "x", calledAt, returnedAt, action };
}

const result = (...history: Operation[]) => checkLinearizability(history).result;

describe("a register", () => {
  it("may show either of two concurrent writes, but then only that one", () => {
    const writes = [call(0, 10, write("a")), call(1, 9, write("b"))];
    expect(result(...writes, call(11, 12, read("a")))).toBe("linearizable");
    expect(result(...writes, call(11, 12, read("b")))).toBe("linearizable");
    const both = [call(11, 12, read("a")), call(13, 14, read("b"))];
    expect(result(...writes, ...both)).toBe("violation");
  });

  it("may show a write in progress, and must not revert it", () => {
    const writes = [call(0, 1, write("a")), call(2, 20, write("b"))];
    expect(result(...writes, call(3, 4, read("b")), call(5, 6, read("b")))).toBe("linearizable");
    expect(result(...writes, call(3, 4, read("b")), call(5, 6, read("a")))).toBe("violation");
    // Two concurrent reads may differ, in either order of their calls.
    expect(result(...writes, call(3, 6, read("b")), call(4, 5, read("a")))).toBe("linearizable");
  });

  it("must show the latest write to a read that began after it", () => {
    const history = [call(0, 1, write("a")), call(2, 3, write("b")), call(4, 5, read("a"))];
    expect(result(...history)).toBe("violation");
    expect(result(...history.slice(0, 2), call(3, 5, read("a")))).toBe("linearizable");
  });

  it("cannot show a value that was never written, or nothing after a write", () => {
    expect(result(call(0, 1, read("ghost")))).toBe("violation");
    expect(result(call(0, 1, write("a")), call(2, 3, read()))).toBe("violation");
    expect(result(call(0, 1, read()), call(2, 3, write("a")))).toBe("linearizable");
  });

  it("may apply a write with a lost outcome late or never, but once", () => {
    const lost = call(0, undefined, write("a"));
    const other = call(1, 2, write("b"));
    const late = [call(3, 4, read("b")), call(5, 6, read("a"))];
    expect(result(lost, other, call(3, 4, read("b")))).toBe("linearizable");
    expect(result(lost, other, ...late)).toBe("linearizable");
    expect(result(lost, other, ...late, call(7, 8, read("b")))).toBe("violation");
    expect(result(call(-2, -1, read("a")), lost)).toBe("violation");
  });

  it("ignores reads whose outcome was lost", () => {
    expect(result(call(0, undefined, read("ghost")))).toBe("linearizable");
  });
});

describe("a key that is created and removed", () => {
  it("has one creator until it is removed", () => {
    expect(result(call(0, 9, create("a", true)), call(1, 8, create("b", true)))).toBe("violation");
    const between = call(2, 7, remove(true));
    expect(result(call(0, 9, create("a", true)), between, call(1, 8, create("b", true)))).toBe(
      "linearizable",
    );
  });

  it("must exist for a refused creation and for a removal", () => {
    expect(result(call(0, 1, create("a", false)))).toBe("violation");
    expect(result(call(0, 1, remove(true)))).toBe("violation");
    expect(result(call(0, 1, remove(false)), call(2, 3, create("a", true)))).toBe("linearizable");
    expect(result(call(0, undefined, create("a")), call(2, 3, create("b", false)))).toBe(
      "linearizable",
    );
  });
});

describe("a compare-and-set value", () => {
  const replace = (expected: string, value: string, replaced?: boolean): Action => ({
    type: "replace",
    expected,
    value,
    replaced,
  });

  it("is replaced by one of two calls that expect the same value", () => {
    const first = call(0, 1, write("a"));
    const two = [call(2, 9, replace("a", "b", true)), call(3, 8, replace("a", "c", true))];
    expect(result(first, ...two)).toBe("violation");
    const refused = call(3, 8, replace("a", "c", false));
    expect(result(first, two[0] as Operation, refused, call(10, 11, read("b")))).toBe(
      "linearizable",
    );
  });

  it("is replaced exactly where the expected value could be current", () => {
    const first = call(0, 1, write("a"));
    expect(result(first, call(2, 3, replace("a", "b", false)))).toBe("violation");
    expect(result(first, call(2, 3, replace("z", "b", true)))).toBe("violation");
  });

  it("may be replaced late by a lost call, but only from its expected value", () => {
    const lost = call(2, undefined, replace("a", "b"));
    const first = call(0, 1, write("a"));
    expect(result(first, lost, call(3, 4, read("a")), call(5, 6, read("b")))).toBe("linearizable");
    const other = call(3, 4, write("c"));
    expect(result(first, lost, other, call(5, 6, read("c")), call(7, 8, read("b")))).toBe(
      "violation",
    );
  });
});

describe("a list", () => {
  it("keeps every appended value once, in a single order", () => {
    const appends = [call(0, 1, append("a")), call(2, 5, append("b")), call(3, 4, append("c"))];
    expect(result(...appends, call(6, 7, read("a", "c", "b")))).toBe("linearizable");
    expect(result(...appends, call(6, 7, read("a", "b")))).toBe("violation");
    expect(result(...appends, call(6, 7, read("b", "a", "c")))).toBe("violation");
    expect(result(...appends, call(6, 7, read("a", "b", "c", "c")))).toBe("violation");
  });

  it("may have a value with a lost outcome at any position after its call", () => {
    const appends = [call(0, undefined, append("a")), call(1, 2, append("b"))];
    for (const values of [["b"], ["a", "b"], ["b", "a"]]) {
      expect(result(...appends, call(3, 4, read(...values)))).toBe("linearizable");
    }
    const before = call(-2, -1, append("z"));
    expect(result(before, ...appends, call(3, 4, read("a", "z", "b")))).toBe("violation");
  });
});

describe("the checker", () => {
  it("checks keys independently and names the one with the violation", () => {
    const other = { ...call(2, 3, read("ghost")), key: "y" };
    const verdict = checkLinearizability([call(0, 1, write("a")), call(2, 3, read("a")), other]);
    expect(verdict).toMatchObject({ result: "violation", key: "y", operations: [other] });
  });

  it("shows a minimal history of the violation", () => {
    const noise = Array.from({ length: 40 }, (_, i) => [
      call(i * 10, i * 10 + 1, write(`w${i}`)),
      call(i * 10 + 2, i * 10 + 3, read(`w${i}`)),
    ]).flat();
    const stale = call(395, 396, read("w20"));
    const later = call(397, 398, read("w39"));
    const verdict = checkLinearizability([...noise, stale, later]);
    expect(verdict.result).toBe("violation");
    if (verdict.result !== "violation") return;
    expect(verdict.operations).toContain(stale);
    expect(verdict.operations).toHaveLength(3);
    expect(verdict.text).toMatch(/no order explains these 3 calls on x:\n {2}c200: write w20/);
  });

  it("reports undecided when its steps are used up", () => {
    const writes = Array.from({ length: 12 }, (_, i) => call(i, 100 + i, write(`${i}`)));
    const reads = [call(200, 201, read("0")), call(202, 203, read("1"))];
    expect(checkLinearizability([...writes, ...reads], 1000)).toMatchObject({
      result: "undecided",
      key: "x",
    });
  });

  it("is fast for thousands of calls with a hundred lost ones", () => {
    const history = generate(7, { calls: 5000, clients: 8, lost: 0.02 });
    expect(checkLinearizability(history)).toMatchObject({ result: "linearizable" });
  });

  it("is fast for many lost creations and removals", () => {
    const history: Operation[] = [];
    for (let i = 0; i < 60; i++) {
      history.push(call(i * 10, undefined, i % 2 ? remove() : create(`lost${i}`)));
      history.push(call(i * 10 + 1, i * 10 + 5, i % 3 ? create(`v${i}`, true) : remove(true)));
    }
    const verdict = checkLinearizability(history);
    expect(verdict).toMatchObject({ result: "linearizable" });
  });

  it("is fast for many lost appends that are seen at the end", () => {
    const values = Array.from({ length: 50 }, (_, i) => `v${i}`);
    const appends = values.map((value, i) => call(i, i % 5 ? undefined : i + 90, append(value)));
    const seen = [...values].reverse();
    expect(result(...appends, call(200, 201, read(...seen)))).toBe("linearizable");
    expect(result(...appends, call(200, 201, read(...seen.slice(1))))).toBe("linearizable");
    expect(result(...appends, call(200, 201, read(...seen.slice(0, -1))))).toBe("violation");
  });

  it("agrees with brute force on small histories of any kind", () => {
    const results = { linearizable: 0, violation: 0 };
    for (let seed = 1; seed <= 1500; seed++) {
      const history = generate(seed, { calls: 6, clients: 3, lost: 0.2, wrong: 0.6 });
      const expected = tryAllOrders(history) ? "linearizable" : "violation";
      expect(checkLinearizability(history).result, `seed ${seed}`).toBe(expected);
      results[expected]++;
    }
    expect(Math.min(results.linearizable, results.violation)).toBeGreaterThan(200);
  });
});

interface Generated {
  readonly calls: number;
  readonly clients: number;
  /** The share of the calls whose outcome the client does not know. */
  readonly lost: number;
  /** Share of the reads that show an earlier state. */
  readonly wrong?: number;
}

/** A history of a key that applies each call at a random time between its call and its return. */
function generate(seed: number, { calls, clients, lost, wrong = 0 }: Generated): Operation[] {
  const random = seededRandom(seed);
  const free = Array.from({ length: clients }, () => 0);
  const planned = Array.from({ length: calls }, (_, i) => {
    const client = i % clients;
    const calledAt = (free[client] as number) + random() * 10;
    const returnedAt = calledAt + random() * 20;
    free[client] = returnedAt + 0.1;
    const effectAt = calledAt + random() * (returnedAt - calledAt);
    return { client: `c${client}`, calledAt, returnedAt, effectAt, number: i };
  });
  const states: string[][] = [[]];
  const history: Operation[] = [];
  for (const call of planned.sort((a, b) => a.effectAt - b.effectAt)) {
    const state = states.at(-1) as string[];
    const kind = random();
    const isLost = random() < lost;
    const value = `v${call.number}`;
    let action: Action;
    if (kind < 0.5) {
      const at = random() < wrong ? Math.floor(random() * states.length) : states.length - 1;
      action = read(...(states[at] as string[]));
    } else if (kind < 0.6) {
      action = write(value);
      states.push([value]);
    } else if (kind < 0.7) {
      action = create(value, isLost ? undefined : state.length === 0);
      if (state.length === 0) states.push([value]);
    } else if (kind < 0.8) {
      action = remove(isLost ? undefined : state.length > 0);
      states.push([]);
    } else {
      action = append(value);
      states.push([...state, value].slice(-30).length > 29 ? [value] : [...state, value]);
      if ((states.at(-1) as string[]).length === 1) action = write(value);
    }
    const { client, calledAt, returnedAt } = call;
    history.push({
      client,
      key: "x",
      calledAt,
      returnedAt: isLost ? undefined : returnedAt,
      action,
    });
  }
  return history;
}

/**
 * The definition itself: some order of the calls, with or without lost ones, explains all reads.
 */
function tryAllOrders(history: readonly Operation[], state: readonly string[] = []): boolean {
  if (history.every(({ returnedAt }) => returnedAt === undefined)) return true;
  return history.some((next) => {
    const rest = history.filter((other) => other !== next);
    const { action, calledAt } = next;
    if (rest.some(({ returnedAt = Number.POSITIVE_INFINITY }) => returnedAt < calledAt))
      return false;
    if (action.type === "write") return tryAllOrders(rest, [action.value]);
    if (action.type === "append") return tryAllOrders(rest, [...state, action.value]);
    if (action.type === "create") {
      const created = state.length === 0;
      const fits = action.created === undefined || action.created === created;
      return fits && tryAllOrders(rest, created ? [action.value] : state);
    }
    if (action.type === "remove") {
      const fits = action.removed === undefined || action.removed === state.length > 0;
      return fits && tryAllOrders(rest, []);
    }
    if (next.returnedAt === undefined) return tryAllOrders(rest, state);
    const { values } = action as { values: readonly string[] };
    return values.join() === state.join() && tryAllOrders(rest, state);
  });
}
