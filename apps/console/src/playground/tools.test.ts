import { expect, test } from "vitest";
import { readTools, withCalls } from "./tools.ts";

test("tools: a list is offered, no text offers none, and other texts are faults", () => {
  const tools = [{ type: "function", function: { name: "now" } }];
  expect(readTools(JSON.stringify(tools), false)).toEqual({ tools });
  expect(readTools(JSON.stringify(tools), true)).toEqual({ tools, tool_choice: "required" });
  expect(readTools(" \n", true)).toEqual({});
  expect(() => readTools("{}", false)).toThrow(/list/);
  expect(() => readTools("[", false)).toThrow(SyntaxError);
});

test("tools: calls grow by the parts of a stream, each by its index", () => {
  const first = withCalls([], [{ index: 0, function: { name: "now", arguments: "" } }]);
  const second = withCalls(first, [
    { index: 0, function: { arguments: '{"zone"' } },
    { index: 1, function: { name: "add", arguments: "{" } },
  ]);
  const third = withCalls(second, [{ index: 0, function: { arguments: ':"UTC"}' } }]);
  expect(withCalls(third)).toEqual([
    { index: 0, name: "now", arguments: '{"zone":"UTC"}' },
    { index: 1, name: "add", arguments: "{" },
  ]);
});
