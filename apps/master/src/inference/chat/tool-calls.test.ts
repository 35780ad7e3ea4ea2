import fc from "fast-check";
import { expect, it } from "vitest";
import { ChoiceSplitter } from "./choice-splitter.ts";
import { type ToolCallDelta, ToolCallSplitter } from "./tool-calls.ts";

function callText(name: string, args: unknown): string {
  return `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(args)}}\n</tool_call>`;
}

/** The result for a text in pieces that end at the given places. */
function split(text: string, cuts: readonly number[]) {
  const splitter = new ToolCallSplitter();
  const ends = [...cuts.map((cut) => cut % (text.length + 1)), text.length].sort((a, b) => a - b);
  const calls: ToolCallDelta[] = [];
  let content = "";
  let from = 0;
  for (const end of ends) {
    const out = splitter.push(text.slice(from, end));
    content += out.text;
    calls.push(...out.calls);
    from = end;
  }
  return { content: content + splitter.finish().text, calls, count: splitter.calls };
}

const object = fc.dictionary(fc.string(), fc.jsonValue());
const places = fc.array(fc.nat(), { maxLength: 20 });

it("tool calls: text and calls come out whole, wherever the pieces are cut", () => {
  const property = fc.property(
    fc.string(),
    fc.array(fc.tuple(fc.constantFrom("get", "set-it"), object), { minLength: 1, maxLength: 3 }),
    places,
    (before, calls, cuts) => {
      const text = before + calls.map(([name, args]) => callText(name, args)).join("\n");
      const out = split(text, cuts);
      expect(out.content).toBe(before);
      expect(out.count).toBe(calls.length);
      calls.forEach(([name, args], at) => {
        const pieces = out.calls.filter(({ index }) => index === at);
        expect(pieces[0]?.name).toBe(name);
        expect(pieces.filter(({ id }) => id !== undefined)).toHaveLength(1);
        const joined = pieces.map((piece) => piece.arguments).join("");
        expect(joined).toBe(JSON.stringify(args));
      });
    },
  );
  fc.assert(property, { numRuns: 200 });
});

it("tool calls: the beginning of an incomplete mark is text", () => {
  expect(split("1 < 2 <tool_", [3, 8]).content).toBe("1 < 2 <tool_");
  const cut = split('Well.<tool_call>\n{"na', [9]);
  expect([cut.content, cut.count]).toEqual(["Well.", 0]);
});

it("tool calls: an answer whose last call is cut by a stop string ends with stop", () => {
  const reasonAfter = (text: string) => {
    const splitter = new ChoiceSplitter(undefined, "any");
    splitter.push({ type: "delta", id: 1, choice: 0, text, tokens: 1 });
    splitter.finish();
    return splitter.reasonOf("stop");
  };
  const text = callText("get", { a: 1 });
  expect(reasonAfter(text)).toBe("tool_calls");
  expect(reasonAfter(text.slice(0, -"\n</tool_call>".length))).toBe("tool_calls");
  expect(reasonAfter(text.slice(0, text.indexOf("1")))).toBe("stop");
  expect(reasonAfter(`${text}\n${text.slice(0, text.indexOf("1"))}`)).toBe("stop");
});
