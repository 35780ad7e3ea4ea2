// holds: api-reasoning

import type { ReasoningStyle } from "@heddle/contracts/engine";
import { describe, expect, it } from "vitest";
import { ReasoningSplitter } from "./reasoning.ts";

/** The parts of an answer in these pieces, with one token and one score each. */
function split(pieces: readonly string[], style?: ReasoningStyle) {
  const splitter = new ReasoningSplitter(style);
  const parts = pieces.map((text) =>
    splitter.push({
      type: "delta",
      id: 1,
      choice: 0,
      text,
      tokens: 1,
      logprobs: [{ token: text, bytes: [], logprob: -1, top: [] }],
    }),
  );
  parts.push(splitter.finish());
  return {
    reasoning: parts.map(({ reasoning }) => reasoning).join(""),
    content: parts.map(({ content }) => content).join(""),
    tokens: parts.reduce((sum, { reasoningTokens }) => sum + reasoningTokens, 0),
    scored: parts.flatMap(({ logprobs }) => (logprobs ?? []).map(({ token }) => token)).join(""),
  };
}

/** Every way of cutting the text into three pieces. */
function* cuts(text: string): Generator<string[]> {
  for (let a = 0; a <= text.length; a++) {
    for (let b = a; b <= text.length; b++) {
      yield [text.slice(0, a), text.slice(a, b), text.slice(b)];
    }
  }
}

describe("reasoning", () => {
  const thought = "<think>\nis a < b?\n</think>\n\nyes, a < b";

  it("is split from the content wherever tokens cut the tags", () => {
    for (const pieces of cuts(thought)) {
      const { reasoning, content } = split(pieces);
      expect({ pieces, reasoning, content }).toEqual({
        pieces,
        reasoning: "is a < b?\n",
        content: "yes, a < b",
      });
    }
    expect(split([...thought])).toMatchObject({ reasoning: "is a < b?\n", content: "yes, a < b" });
  });

  it("has its tokens counted and its scores omitted", () => {
    const pieces = ["<th", "ink>", " hm", " hm", "</think", ">", "yes", "!"];
    expect(split(pieces)).toMatchObject({ tokens: 6, scored: "yes!", content: "yes!" });
  });

  it("without an end leaves no content", () => {
    expect(split(["<think>", "on and on</thi"])).toEqual({
      reasoning: "on and on</thi",
      content: "",
      tokens: 2,
      scored: "",
    });
  });

  it("starts at once after an open tag in the prompt; the tag may be repeated", () => {
    for (const text of ["a</think>b", "<think>a</think>b", "\n<think>\na</think>\n\nb"]) {
      for (const pieces of cuts(text)) {
        expect(split(pieces, "open")).toMatchObject({ reasoning: "a", content: "b" });
      }
    }
  });

  it("is found in the middle of the answer if the model is known to reason", () => {
    for (const pieces of cuts("one <think>two</think>three <b>")) {
      expect(split(pieces, "tagged")).toMatchObject({ reasoning: "two", content: "one three <b>" });
    }
  });
});

describe("an ordinary answer", () => {
  it.each([
    "plain",
    "  leading space, <b>tags</b> and </think>",
    "later <think>is text</think> as any",
    "<thin",
    "<",
    " \n<thinking> is another tag",
  ])("is its own text with all its scores: %j", (text) => {
    for (const pieces of cuts(text)) {
      expect(split(pieces)).toEqual({ reasoning: "", content: text, tokens: 0, scored: text });
    }
  });
});
