import { seededRandom } from "@heddle/base/random";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Candidate, PartPlace } from "../../nodes/replicas/ready-replica.ts";
import { PrefixIndex, promptChunks } from "./prefix-index.ts";
import { allFull, chooseReplica, unknownTo } from "./routing.ts";

const KEY = "k";
const candidate = fc.record({
  holder: fc.string(),
  used: fc.nat(20),
  calls: fc.nat(20),
  maxSequences: fc.integer({ min: 1, max: 8 }),
  maxQueued: fc.nat(8),
  usedBy: fc.nat(20).map((own) => () => own),
  yielding: fc.constant(() => 0),
});
const candidates = fc.uniqueArray(candidate, { selector: ({ holder }) => holder, maxLength: 6 });
const chunks = (text: string) => promptChunks({ kind: "text", text });
const startsAtOnce = (c: Candidate, sequences: number) => c.used + sequences <= c.maxSequences;
const call = (sequences: number) => ({ sequences, fairKey: KEY, priority: 0 });
const shareOf = (c: Candidate) => Math.max(1, Math.floor(c.maxSequences / 2));
const fits = (c: Candidate, sequences: number) =>
  c.used === 0 ||
  c.used + Math.min(sequences, shareOf(c)) <=
    c.maxSequences + Math.min(c.maxQueued, c.maxSequences) ||
  (c.calls < c.maxSequences && sequences <= shareOf(c) && c.maxQueued > 0) ||
  (c.usedBy(KEY) + Math.min(sequences, shareOf(c)) <= shareOf(c) &&
    c.used + Math.min(sequences, shareOf(c)) <=
      c.maxSequences + Math.min(c.maxQueued, 4 * c.maxSequences));

describe("replica choice", () => {
  test("never takes one without room, nor a full one while another starts at once", () => {
    fc.assert(
      fc.property(
        candidates,
        fc.integer({ min: 1, max: 4 }),
        fc.nat(9),
        (all, sequences, depth) => {
          const matched = new Map(all.map(({ holder }, index) => [holder, (index * depth) % 10]));
          const chosen = chooseReplica(all, call(sequences), { chunks: 10, matched }, () => 0);
          if (!chosen) {
            expect(all.some((c) => fits(c, sequences))).toBe(false);
            return;
          }
          expect(fits(chosen, sequences)).toBe(true);
          if (all.some((c) => startsAtOnce(c, sequences))) {
            expect(startsAtOnce(chosen, sequences)).toBe(true);
          }
        },
      ),
    );
  });

  const replica = (holder: string, used: number): Candidate => ({
    holder,
    used,
    calls: used,
    maxSequences: 8,
    maxQueued: 8,
    usedBy: () => used,
    yielding: () => 0,
  });
  const choose = (
    all: Candidate[],
    matched: [string, number][] = [],
    last = new Map<string, number>(),
  ) =>
    chooseReplica(
      all,
      call(1),
      { chunks: 10, matched: new Map(matched) },
      ({ holder }) => last.get(holder) ?? 0,
    )?.holder;

  test("parts of one call go apart, also where one replica holds their prompt", () => {
    const all = ["a", "b", "c"].map((holder) => replica(holder, 0));
    const matched = new Map([["a", 10]]);
    const siblings: PartPlace[] = [];
    const chosen = Array.from({ length: 6 }, () => {
      const place = { sequences: 2, holder: undefined as string | undefined, siblings };
      siblings.push(place);
      const prompt = { chunks: 10, matched };
      place.holder = chooseReplica(all, { ...call(2), place }, prompt, () => 0)?.holder;
      return place.holder;
    });
    expect(chosen).toEqual(["a", "b", "c", "a", "b", "c"]);
  });

  test("admits a call where few calls hold all slots, but not into a full queue", () => {
    const full = { ...replica("a", 64), calls: 2 };
    const roomFor = (candidate: Candidate, sequences: number) =>
      chooseReplica([candidate], call(sequences), { chunks: 0, matched: new Map() }, () => 0)
        ?.holder;
    expect(roomFor(full, 1)).toBe("a");
    expect(roomFor(full, 4)).toBe("a");
    expect(roomFor(full, 5)).toBeUndefined();
    expect(roomFor({ ...full, calls: 8 }, 1)).toBeUndefined();
    expect(roomFor({ ...full, maxQueued: 0 }, 1)).toBeUndefined();
  });

  // holds: api-fairness
  test("gives a key half a batch where another key has all slots", () => {
    const roomFor = (used: number, own: number, maxQueued = 64) => {
      const full = { ...replica("a", used), calls: used, maxQueued, usedBy: () => own };
      return chooseReplica([full], call(1), { chunks: 0, matched: new Map() }, () => 0)?.holder;
    };
    expect(roomFor(16, 0)).toBe("a");
    expect(roomFor(19, 3)).toBe("a");
    expect(roomFor(20, 4)).toBeUndefined();
    expect(roomFor(39, 0)).toBe("a");
    expect(roomFor(40, 0)).toBeUndefined();
    expect(roomFor(16, 0, 8)).toBeUndefined();
  });

  test("does not hold a call of many choices until a replica is idle", () => {
    const roomFor = (used: number) =>
      chooseReplica([replica("a", used)], call(128), { chunks: 0, matched: new Map() }, () => 0)
        ?.holder;
    expect(roomFor(12)).toBe("a");
    expect(roomFor(13)).toBeUndefined();
  });

  test("follows a cached prefix until the replica's batch is full, then spills", () => {
    expect(choose([replica("a", 6), replica("b", 0)], [["a", 9]])).toBe("a");
    expect(choose([replica("a", 8), replica("b", 0)], [["a", 9]])).toBe("b");
  });

  test("takes the least loaded without a cached prefix, and equals in turn", () => {
    expect(choose([replica("a", 3), replica("b", 2)])).toBe("b");
    const last = new Map([
      ["a", 7],
      ["b", 3],
    ]);
    expect(choose([replica("a", 2), replica("b", 2)], [], last)).toBe("b");
  });
});

describe("replica choice: bounds", () => {
  const replica = (more: Partial<Candidate>): Candidate => ({
    holder: "a",
    yielding: () => 0,
    used: 0,
    calls: 0,
    maxSequences: 4,
    maxQueued: 100,
    usedBy: () => 0,
    ...more,
  });
  const choose = (all: readonly Candidate[], sequences = 1) =>
    chooseReplica(all, call(sequences), { chunks: 0, matched: new Map() }, () => 0)?.holder;

  test("replicas are full when each holds four more batches, or its queue bound", () => {
    const [full, free] = [replica({ used: 20 }), replica({ used: 19 })];
    expect([allFull([]), allFull([full]), allFull([free]), allFull([full, free])]).toEqual([
      true,
      true,
      false,
      false,
    ]);
    expect(allFull([replica({ used: 5, maxQueued: 1 })])).toBe(true);
    expect(allFull([replica({ used: 4, maxQueued: 1 })])).toBe(false);
  });

  test("an idle replica takes a call of more choices than it has slots", () => {
    expect(choose([replica({ maxSequences: 1, maxQueued: 0 })], 128)).toBe("a");
    expect(choose([replica({ maxSequences: 1, maxQueued: 0, used: 1, calls: 1 })])).toBeUndefined();
  });

  test("calls that yield take no room, within the queue's bound", () => {
    const roomFor = (used: number, yielding: number, maxQueued = 8) => {
      const busy = { used, calls: used, maxQueued, usedBy: () => used, yielding: () => yielding };
      return choose([replica(busy)]);
    };
    expect(roomFor(8, 0)).toBeUndefined();
    expect(roomFor(8, 1)).toBe("a");
    expect(roomFor(11, 3)).toBeUndefined();
    expect(roomFor(11, 4)).toBe("a");
    expect(roomFor(12, 12)).toBeUndefined();
    expect(roomFor(4, 4, 0)).toBeUndefined();
  });

  test("load counts by the size of the batch", () => {
    const [small, large] = [replica({ used: 1 }), { ...replica({ used: 2 }), holder: "b" }];
    expect(choose([small, { ...large, maxSequences: 16 }])).toBe("b");
    expect(choose([small, large])).toBe("a");
    expect(choose([large, small])).toBe("a");
  });

  test("a half-cached prompt outweighs half a batch, and less does not", () => {
    const chosen = (matched: number) =>
      chooseReplica(
        [replica({ used: 2 }), { ...replica({}), holder: "b" }],
        call(1),
        { chunks: 100, matched: new Map([["a", matched]]) },
        ({ holder }) => (holder === "a" ? 1 : 0),
      )?.holder;
    expect([chosen(24), chosen(25), chosen(26)]).toEqual(["b", "b", "a"]);
  });
});

describe("older workers", () => {
  const request = { choices: 1, adapter: "tuned" } as never;
  const refusal = (count: number) => {
    const workers = Array.from({ length: count }, (_, i) => ({ features: [], nodeName: `w${i}` }));
    return unknownTo(workers, request, "tiny")?.message;
  };

  test("a refusal names at most five of them", () => {
    expect(refusal(0)).toBeUndefined();
    expect(refusal(5)).toMatch(/upgrade w0, w1, w2, w3, w4$/);
    expect(refusal(7)).toMatch(/upgrade w0, w1, w2, w3, w4 and 2 more$/);
  });
});

describe("prefix index", () => {
  test("finds each replica's share of a prompt, like a direct comparison", () => {
    const word = fc.constantFrom("a".repeat(64), "b".repeat(64), "c".repeat(64));
    const prompt = fc.array(word, { maxLength: 6 });
    const served = fc.array(fc.tuple(prompt, fc.constantFrom("x", "y", "z")), { maxLength: 12 });
    fc.assert(
      fc.property(served, prompt, (history, asked) => {
        const index = new PrefixIndex(1_000);
        for (const [words, holder] of history) index.remember(chunks(words.join("")), holder);
        const matched = index.match(chunks(asked.join("")));
        for (const holder of ["x", "y", "z"]) {
          const shared = history
            .filter(([, by]) => by === holder)
            .map(([words]) => commonPrefix(words, asked));
          expect(matched.get(holder) ?? 0).toBe(Math.max(0, ...shared));
        }
      }),
    );
  });

  test("stays within its bound and evicts the least recently used", () => {
    const index = new PrefixIndex(8);
    const prompt = (name: string) => chunks(name.repeat(64 * 4));
    index.remember(prompt("a"), "x");
    index.remember(prompt("b"), "x");
    index.remember(prompt("a"), "x");
    index.remember(prompt("c"), "x");
    expect(index.size).toBe(8);
    expect(index.match(prompt("a")).get("x")).toBe(4);
    expect(index.match(prompt("b")).get("x")).toBeUndefined();
    expect(index.match(prompt("c")).get("x")).toBe(4);
  });

  test("keeps the eight latest replicas of a chunk", () => {
    const index = new PrefixIndex(10);
    const prompt = chunks("p".repeat(64));
    for (let i = 0; i < 9; i += 1) index.remember(prompt, `r${i}`);
    index.remember(prompt, "r3");
    const held = [...index.match(prompt).keys()];
    expect(held).toEqual(["r3", "r8", "r7", "r6", "r5", "r4", "r2", "r1"]);
  });

  test("a replica that lost the first chunk of a prompt has none of it", () => {
    const index = new PrefixIndex(10);
    const prompt = chunks("p".repeat(2 * 64));
    index.remember(prompt, "lost");
    for (let i = 0; i < 8; i += 1) index.remember(prompt.slice(0, 1), `r${i}`);
    const matched = index.match(prompt);
    expect([matched.get("lost"), matched.get("r7")]).toEqual([undefined, 1]);
  });

  test("only complete chunks count: 64 characters, 16 tokens, at most 1,024 chunks", () => {
    const counts = [0, 63, 64, 127, 128, 64 * 1_024 + 64].map((n) => chunks("x".repeat(n)).length);
    expect(counts).toEqual([0, 0, 1, 1, 2, 1_024]);
    const tokens = [15, 16, 16 * 1_025].map(
      (length) => promptChunks({ kind: "tokens", tokens: Array(length).fill(7) }).length,
    );
    expect(tokens).toEqual([0, 1, 1_024]);
  });

  test("equal prefixes have equal chunks; one unit changes all that follow", () => {
    const text = "abcdefgh".repeat(32);
    const whole = chunks(text);
    expect(chunks(text.slice(0, 200))).toEqual(whole.slice(0, 3));
    const other = chunks(`${text.slice(0, 70)}X${text.slice(71)}`);
    expect(other.map((key, i) => key === whole[i])).toEqual([true, false, false, false]);
    expect(whole.every(Number.isSafeInteger)).toBe(true);
  });

  test("chat messages that differ in a name or a tool call are different prompts", () => {
    const message = { role: "user", content: "x".repeat(100) } as const;
    const call = { id: "c", name: "f", arguments: "{}" };
    const keys = [
      message,
      { ...message, name: "n" },
      { ...message, content: "y".repeat(100) },
      { ...message, toolCalls: [call] },
      { ...message, toolCallId: "c" },
    ].map((each) => promptChunks({ kind: "chat", messages: [each, message] }).join());
    expect(new Set(keys).size).toBe(keys.length);
  });

  test("random prompts of equal chunks do not collide (seed 7)", () => {
    const random = seededRandom(7);
    const seen = new Set<number>();
    const tokens = Array.from({ length: 16 * 1_000 }, () => Math.floor(random() * 128_000));
    for (const key of promptChunks({ kind: "tokens", tokens })) seen.add(key);
    expect(seen.size).toBe(1_000);
  });

  test("chat messages that differ in role alone are different prompts", () => {
    const content = "x".repeat(200);
    const user = promptChunks({ kind: "chat", messages: [{ role: "user", content }] });
    const system = promptChunks({ kind: "chat", messages: [{ role: "system", content }] });
    expect(user[0]).not.toBe(system[0]);
  });
});

function commonPrefix(a: readonly string[], b: readonly string[]): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length += 1;
  return length;
}
