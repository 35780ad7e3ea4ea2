import { seededRandom } from "@heddle/base/random";
import { describe, expect, it, test } from "vitest";
import { type ConsistencyModel, UpdateClock } from "./update-clock.ts";

describe("bsp", () => {
  it("makes an update when the last rank's part has arrived, not before", () => {
    const clock = new UpdateClock({ kind: "bsp" }, 3);
    expect(clock.accept(2, 1)).toEqual([]);
    expect(clock.accept(0, 1)).toEqual([]);
    expect(clock.mayPull(1)).toBe(false);
    expect(clock.accept(1, 1)).toEqual([0, 1, 2]);
    expect(clock.version).toBe(1);
    expect(clock.mayPull(1)).toBe(true);
  });

  it("lets no rank ahead, where asp lets all", () => {
    const [bsp, asp] = (["bsp", "asp"] as const).map((kind) => new UpdateClock({ kind }, 2));
    expect([bsp?.mayPull(9), asp?.mayPull(9)]).toEqual([false, true]);
  });

  it("distinguishes repeated, late and out-of-order parts", () => {
    const clock = new UpdateClock({ kind: "bsp" }, 2);
    clock.accept(0, 1);
    expect(clock.classify(0, 1)).toBe("repeated");
    expect(clock.classify(0, 2)).toBe("out_of_order");
    expect(clock.classify(5, 1)).toBe("out_of_order");
    expect(clock.applyWithoutStragglers()).toEqual([0]);
    expect(clock.stragglers).toBe(1);
    expect(clock.classify(1, 1)).toBe("late");
    expect(clock.classify(1, 2)).toBe("accepted");
  });

  it("waits for every live rank, and for none that has left", () => {
    const clock = new UpdateClock({ kind: "bsp" }, 2);
    expect(clock.applyWithoutStragglers()).toEqual([]);
    clock.accept(0, 1);
    expect(clock.leave(1)).toEqual([0]);
    expect(clock.classify(1, 2)).toBe("out_of_order");
    clock.join(1);
    expect(clock.clockOf(1)).toBe(1);
    expect(clock.accept(0, 2)).toEqual([]);
    expect(clock.accept(1, 2)).toEqual([0, 1]);
  });

  it("makes no update when the last rank leaves without a part", () => {
    const clock = new UpdateClock({ kind: "bsp" }, 2);
    expect(clock.leave(0)).toEqual([]);
    expect(clock.leave(1)).toEqual([]);
    expect(clock.version).toBe(0);
  });

  it("waits again for a part that was withdrawn", () => {
    const clock = new UpdateClock({ kind: "bsp" }, 2, 3);
    clock.accept(0, 4);
    expect(clock.clockOf(0)).toBe(4);
    clock.withdraw(0);
    expect([clock.clockOf(0), clock.clockOf(9)]).toEqual([3, undefined]);
    expect(clock.accept(1, 4)).toEqual([]);
    expect(clock.accept(0, 4)).toEqual([0, 1]);
  });

  it("continues from a checkpoint's version", () => {
    const clock = new UpdateClock({ kind: "bsp" }, 1, 7);
    expect(clock.classify(0, 7)).toBe("repeated");
    expect(clock.accept(0, 8)).toEqual([0]);
    expect(clock.version).toBe(8);
  });
});

test.each<ConsistencyModel>([{ kind: "ssp", staleness: 4 }, { kind: "asp" }])(
  "%o: a rank that returns continues at its clock and pushes nothing twice",
  (model) => {
    const clock = new UpdateClock(model, 2);
    for (const push of [1, 2, 3]) clock.accept(0, push);
    clock.leave(0);
    clock.accept(1, 1);
    clock.join(0);
    expect(clock.clockOf(0)).toBe(3);
    expect(clock.classify(0, 3)).toBe("repeated");
    expect(clock.classify(0, 4)).toBe("accepted");
    clock.leave(1);
    clock.accept(0, 4);
    clock.join(1);
    expect(clock.clockOf(1)).toBe(1);
    expect(clock.version).toBe(5);
  },
);

test.each<ConsistencyModel>([
  { kind: "bsp" },
  { kind: "ssp", staleness: 0 },
  { kind: "ssp", staleness: 3 },
  { kind: "asp" },
])("%o: no rank that obeys its pulls exceeds the bound, in 60 random runs", (model) => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = seededRandom(seed);
    const workers = 1 + Math.floor(random() * 5);
    const clock = new UpdateClock(model, workers);
    const pushed = new Array<number>(workers).fill(0);
    for (let step = 0; step < 200; step++) {
      const rank = Math.floor(random() * workers);
      const next = (pushed[rank] ?? 0) + 1;
      if (!clock.mayPull(next - 1)) continue;
      expect(clock.classify(rank, next), `seed ${seed}`).toBe("accepted");
      clock.accept(rank, next);
      pushed[rank] = next;
      const ahead = Math.max(...pushed) - Math.min(...pushed);
      const bound = model.kind === "ssp" ? model.staleness + 1 : model.kind === "bsp" ? 1 : 200;
      expect(ahead, `seed ${seed}`).toBeLessThanOrEqual(bound);
    }
    const updates = model.kind === "bsp" ? Math.min(...pushed) : pushed.reduce((a, b) => a + b, 0);
    expect(clock.version, `seed ${seed}`).toBe(updates);
  }
});

test("ssp: a rank that left holds no other rank up", () => {
  const clock = new UpdateClock({ kind: "ssp", staleness: 1 }, 2);
  for (const push of [1, 2]) clock.accept(0, push);
  expect(clock.mayPull(2)).toBe(false);
  clock.leave(1);
  expect(clock.mayPull(2)).toBe(true);
});
