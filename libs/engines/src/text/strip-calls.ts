type Side = "strip" | "lstrip" | "rstrip";

/** Called in place of the methods; no template has functions of these names. */
const FUNCTION_NAMES = { strip: "__strip", lstrip: "__lstrip", rstrip: "__rstrip" } as const;

/** The functions that the rewritten calls use. They act as Python's methods, with the characters to strip. */
export const STRIP_FUNCTIONS = {
  [FUNCTION_NAMES.strip]: (text: unknown, characters: unknown) =>
    stripped(text, characters, "strip"),
  [FUNCTION_NAMES.lstrip]: (text: unknown, characters: unknown) =>
    stripped(text, characters, "lstrip"),
  [FUNCTION_NAMES.rstrip]: (text: unknown, characters: unknown) =>
    stripped(text, characters, "rstrip"),
} as const;

interface Node {
  type?: unknown;
  callee?: Node & { object?: Node; property?: Node & { value?: unknown }; computed?: unknown };
  args?: unknown[];
}

/**
 * Turns `x.strip(y)` and its like into calls of functions, in place. The library takes off all
 * white space whatever `y` is, and templates take off line breaks alone.
 */
export function rewriteStrips(node: unknown): void {
  if (typeof node !== "object" || node === null) return;
  for (const member of Object.values(node)) rewriteStrips(member);
  const call = node as Node;
  const { callee, args = [] } = call;
  if (call.type !== "CallExpression" || callee?.type !== "MemberExpression") return;
  const { object, property, computed } = callee;
  const name = property?.value;
  if (computed || args.length !== 1 || !isSide(name)) return;
  call.args = [object, ...args];
  call.callee = { ...property, type: "Identifier", value: FUNCTION_NAMES[name] } as Node;
}

function isSide(name: unknown): name is Side {
  return typeof name === "string" && Object.hasOwn(FUNCTION_NAMES, name);
}

function stripped(text: unknown, characters: unknown, side: Side): string {
  const all = String(text);
  const set = new Set(String(characters));
  let from = 0;
  let to = all.length;
  while (side !== "rstrip" && from < to && set.has(all[from] as string)) from++;
  while (side !== "lstrip" && from < to && set.has(all[to - 1] as string)) to--;
  return all.slice(from, to);
}
