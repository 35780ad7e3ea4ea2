import type { FileRule } from "./shape-rules.ts";
import { find, isTest, type SyntaxNode, walk } from "./source-file.ts";

// Rules about tests that must hold on a slow machine.

/** The timeout of vitest.config.ts. */
const DEFAULT_TIMEOUT_MS = 300_000;
const TIMED = /^(test|it|describe|(before|after)(All|Each))$/;

/** A timeout of a test or hook that is shorter than the default one. */
export const shortTimeout: FileRule = (file) => {
  if (!isTest(file.path)) return [];
  return find(file, (node) => {
    const short = timeoutsOf(node).find((ms) => ms < DEFAULT_TIMEOUT_MS);
    if (short === undefined) return undefined;
    return `a timeout of ${short} ms: leave it out, the default is ${DEFAULT_TIMEOUT_MS} ms`;
  });
};

/** `for (const each of promises) await each`: the second may reject while the first is awaited. */
export const awaitedApart: FileRule = (file) => {
  if (!isTest(file.path)) return [];
  return find(file, (node) => {
    if (node.type !== "ForOfStatement" || node["await"]) return undefined;
    const [declared] = ((node["left"] as SyntaxNode)["declarations"] ?? []) as SyntaxNode[];
    const name = (declared?.["id"] as SyntaxNode | undefined)?.["name"];
    let isApart = false;
    walk(node["body"] as SyntaxNode, ({ type, argument }) => {
      if (type !== "AwaitExpression") return;
      const awaited = argument as SyntaxNode;
      isApart ||= awaited.type === "Identifier" && awaited["name"] === name;
    });
    return isApart ? "promises that are awaited apart: use `Promise.all`" : undefined;
  });
};

/** The literal timeouts that a call gives to a test or hook, or to all of its file. */
function timeoutsOf(node: SyntaxNode): number[] {
  if (node.type !== "CallExpression") return [];
  const given = node["arguments"] as readonly SyntaxNode[];
  const root = rootOf(node);
  if (root === "vi") return given.flatMap((each) => fieldsOf(each, /^(test|hook)Timeout$/));
  if (!TIMED.test(root)) return [];
  const last = given.length > 1 ? numbersOf(given.at(-1)) : [];
  return [...last, ...given.flatMap((each) => fieldsOf(each, /^timeout$/))];
}

/** The first name of `it.skipIf(x)(...)`. */
function rootOf(call: SyntaxNode): string {
  let callee = call["callee"] as SyntaxNode;
  while (callee.type === "MemberExpression" || callee.type === "CallExpression") {
    callee = (callee["object"] ?? callee["callee"]) as SyntaxNode;
  }
  return String(callee["name"] ?? "");
}

function fieldsOf(node: SyntaxNode, name: RegExp): number[] {
  if (node.type !== "ObjectExpression") return [];
  const fields = node["properties"] as readonly SyntaxNode[];
  const named = fields.filter((each) => {
    return name.test(String((each["key"] as SyntaxNode | undefined)?.["name"]));
  });
  return named.flatMap((each) => numbersOf(each["value"] as SyntaxNode));
}

function numbersOf(node: SyntaxNode | undefined): number[] {
  return node?.type === "Literal" && typeof node["value"] === "number" ? [node["value"]] : [];
}
