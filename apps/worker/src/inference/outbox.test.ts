import type { EngineEvent } from "@heddle/contracts/engine";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Outbox } from "./outbox.ts";

const delta = (choice: number, text: string, tokens = 1): EngineEvent => ({
  type: "delta",
  id: 1,
  choice,
  text,
  tokens,
});
const done: EngineEvent = {
  type: "done",
  id: 1,
  usage: { promptTokens: 1, cachedTokens: 0, completionTokens: 2, reasoningTokens: 0 },
};

test("outbox: with credit every event leaves unchanged", () => {
  const outbox = new Outbox(10);
  outbox.push(delta(0, "a"));
  expect(outbox.take()).toEqual([delta(0, "a")]);
  outbox.push(delta(0, "b"));
  outbox.push(done);
  expect(outbox.take()).toEqual([delta(0, "b"), done]);
  expect(outbox.take()).toEqual([]);
});

test("outbox: without credit the deltas of each choice are folded", () => {
  const outbox = new Outbox(1);
  outbox.push(delta(0, "a"));
  expect(outbox.take()).toHaveLength(1);
  for (const text of ["b", "c", "d"]) {
    outbox.push(delta(0, text));
    outbox.push(delta(1, text.toUpperCase()));
  }
  expect(outbox.take()).toEqual([]);
  outbox.grant(5);
  expect(outbox.take()).toEqual([delta(0, "bcd", 3), delta(1, "BCD", 3)]);
});

test("outbox: a folded delta is cut where one of its deltas is", () => {
  const outbox = new Outbox(0);
  outbox.push(delta(0, "a"));
  outbox.push({ ...delta(0, "b"), isCut: true } as EngineEvent);
  outbox.push(delta(1, "c"));
  outbox.grant(2);
  expect(outbox.take()).toEqual([{ ...delta(0, "ab", 2), isCut: true }, delta(1, "c")]);
});

test("outbox: an abandoned request sends its last event only, without credit", () => {
  const outbox = new Outbox(0);
  outbox.push(delta(0, "a"));
  outbox.abandon();
  outbox.push(delta(0, "b"));
  outbox.push(done);
  expect(outbox.take()).toEqual([done]);
});

test("outbox: text, tokens and logprobs of each choice arrive whole and in order", () => {
  const step = fc.oneof(
    fc.record({ do: fc.constant("delta" as const), choice: fc.nat(2), logprob: fc.boolean() }),
    fc.record({ do: fc.constant("grant" as const), events: fc.nat(3) }),
    fc.record({ do: fc.constant("take" as const) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.nat(3), (steps, window) => {
      const outbox = new Outbox(window);
      const none = () => {
        return { text: "", tokens: 0, tokenIds: [] as number[], logprobs: [] as string[] };
      };
      const sent = [0, 1, 2].map(none);
      const got = [0, 1, 2].map(none);
      let credit = window;
      const take = () => {
        const events = outbox.take();
        credit -= events.length;
        expect(credit).toBeGreaterThanOrEqual(0);
        for (const event of events) {
          if (event.type !== "delta") continue;
          const into = got[event.choice];
          if (!into) throw new Error("an unknown choice");
          into.text += event.text;
          into.tokens += event.tokens;
          into.tokenIds.push(...(event.tokenIds ?? []));
          into.logprobs.push(...(event.logprobs ?? []).map(({ token }) => token));
        }
        return events;
      };
      for (const [index, action] of steps.entries()) {
        if (action.do === "take") take();
        else if (action.do === "grant") {
          outbox.grant(action.events);
          credit += action.events;
        } else {
          const text = `${index} `;
          const from = sent[action.choice];
          if (!from) throw new Error("an unknown choice");
          from.text += text;
          from.tokens += 1;
          if (action.logprob) from.logprobs.push(text);
          const logprobs = [{ token: text, bytes: [], logprob: 0, top: [] }];
          from.tokenIds.push(index);
          const event = { ...delta(action.choice, text), tokenIds: [index] };
          outbox.push(action.logprob ? ({ ...event, logprobs } as EngineEvent) : event);
        }
      }
      for (const choice of [0, 1, 2]) {
        outbox.push({ type: "finish", id: 1, choice, reason: "stop" });
      }
      outbox.push(done);
      outbox.grant(100);
      credit += 100;
      const last = take();
      expect(got).toEqual(sent);
      expect(last.at(-1)).toEqual(done);
      // At most one delta and one finish for each choice wait, and the end.
      expect(last.length).toBeLessThanOrEqual(3 * 2 + 1);
    }),
  );
});
