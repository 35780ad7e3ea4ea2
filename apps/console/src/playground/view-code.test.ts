import { execFileSync } from "node:child_process";
import { parseSync } from "oxc-parser";
import { expect, test } from "vitest";
import { viewCode } from "./view-code.ts";

const ORIGIN = "http://127.0.0.1:8080";
const request = {
  model: "SmolLM2",
  messages: [{ role: "user", content: 'It\'s "quoted"\nand $HOME `too` \\ done' }],
  temperature: 0.7,
  max_tokens: 64,
};

test("code: the command for curl passes the request through a shell unchanged", () => {
  const command = viewCode("curl", ORIGIN, request);
  // In place of curl a function prints its last argument, which is the body.
  const script = `curl() { for last; do :; done; printf %s "$last"; }\n${command}`;
  const body = execFileSync("sh", ["-c", script], { encoding: "utf8" });
  expect(JSON.parse(body)).toEqual({ ...request, stream: true });
  expect(command).toContain(`${ORIGIN}/api/v1/chat/completions`);
});

test("code: the TypeScript parses and has the request", () => {
  const text = viewCode("TypeScript", ORIGIN, request);
  expect(parseSync("code.ts", text).errors).toEqual([]);
  expect(text).toContain(JSON.stringify(request.messages[0]?.content));
});

test("code: the Python has balanced brackets and the request's text in one literal", () => {
  const text = viewCode("Python", ORIGIN, request);
  expect(text).toContain(JSON.stringify(request.messages[0]?.content));
  const code = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, "");
  for (const [open, close] of ["()", "[]", "{}"].map((pair) => [...pair])) {
    expect(code.split(open!).length, open).toBe(code.split(close!).length);
  }
});

test("code: each language offers the tools of the request", () => {
  const parameters = { type: "object", additionalProperties: false };
  const tools = [{ type: "function" as const, function: { name: "now", parameters } }];
  const offering = { ...request, tools, tool_choice: "required" as const };
  const python = viewCode("Python", ORIGIN, offering);
  const [, literal = ""] = /tools=json\.loads\((".*")\),$/m.exec(python) ?? [];
  expect(JSON.parse(JSON.parse(literal))).toEqual(tools);
  expect(python).toMatch(/^import json$/m);
  for (const language of ["curl", "Python", "TypeScript"] as const) {
    expect(viewCode(language, ORIGIN, offering)).toMatch(/tool_choice"?[:=] ?"required"/);
  }
});

test("code: no language shows a key", () => {
  for (const language of ["curl", "Python", "TypeScript"] as const) {
    expect(viewCode(language, ORIGIN, request)).toContain("HEDDLE_API_KEY");
  }
});
