import { expect, it } from "vitest";
import { TextChoice } from "./text-choice.ts";

const scored = (token: string, logprob: number) => {
  return { token, bytes: [...Buffer.from(token)], logprob };
};

it("completions: alternatives have the token itself, also where it is not likely", () => {
  const top = [scored("b", -0.5), scored("c", -1)];
  const choice = new TextChoice(0, 2);
  const { logprobs } = choice.delta("ab", [
    { ...scored("a", -7), top },
    { ...scored("b", -0.5), top },
  ]);
  expect(logprobs?.top_logprobs).toEqual([
    { b: -0.5, c: -1, a: -7 },
    { b: -0.5, c: -1 },
  ]);
  expect(logprobs?.text_offset).toEqual([0, 1]);
});
