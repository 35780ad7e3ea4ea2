import type protobuf from "protobufjs/light.js";

type Space = protobuf.INamespace;
type Part = Space & Partial<protobuf.IType>;

const SCALAR =
  /^(double|float|u?int32|u?int64|s(?:int|fixed)(?:32|64)|fixed(?:32|64)|bool|string|bytes)$/;

/**
 * The part of a description in protobufjs's JSON that one message type needs: itself, and the types
 * of its fields, directly or not. `name` is resolved from inside the namespace `from`.
 */
export function messageClosure(
  all: Space,
  from: readonly string[],
  name: string,
): { readonly descriptors: Space; readonly fullName: string } {
  const descriptors: Space = { nested: {} };
  const path = resolved(all, from, name);
  const waiting = [path];
  const done = new Set<string>();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const unit = next.slice(0, unitLength(all, next));
    const key = unit.join(".");
    if (done.has(key)) continue;
    done.add(key);
    copy(all, descriptors, unit);
    for (const [scope, type] of references(find(all, unit), unit)) {
      waiting.push(resolved(all, scope, type));
    }
  }
  return { descriptors, fullName: path.join(".") };
}

function find(all: Space, path: readonly string[]): Part | undefined {
  let part: Part | undefined = all;
  for (const name of path) part = part?.nested?.[name] as Part | undefined;
  return part;
}

/** Protobuf's rule: the innermost scope that has the name. */
function resolved(all: Space, scope: readonly string[], name: string): string[] {
  const names = name.split(".").filter((each) => each !== "");
  const outermost = name.startsWith(".") ? 0 : scope.length;
  for (let length = outermost; length >= 0; length--) {
    const path = [...scope.slice(0, length), ...names];
    if (find(all, path)) return path;
  }
  throw new Error(`proto/ defines no type ${name}`);
}

/** A type is taken with those nested in it. */
function unitLength(all: Space, path: readonly string[]): number {
  const isType = (_: string, i: number) => {
    const part = find(all, path.slice(0, i + 1));
    return part !== undefined && ("fields" in part || "values" in part);
  };
  return path.findIndex(isType) + 1;
}

function copy(all: Space, to: Space, path: readonly string[]): void {
  let target: Part = to;
  for (const [i, name] of path.entries()) {
    const { nested, ...own } = find(all, path.slice(0, i + 1)) as Part;
    target.nested ??= {};
    target.nested[name] ??= i === path.length - 1 ? { ...own, ...(nested && { nested }) } : own;
    target = target.nested[name] as Part;
  }
}

/** What the fields of a part and of those nested in it refer to, each with its scope. */
function references(
  part: Part | undefined,
  path: readonly string[],
): [readonly string[], string][] {
  const own = Object.values(part?.fields ?? {})
    .filter(({ type }) => !SCALAR.test(type))
    .map(({ type }): [readonly string[], string] => [path, type]);
  const inner = Object.entries(part?.nested ?? {}).flatMap(([name, each]) =>
    references(each as Part, [...path, name]),
  );
  return [...own, ...inner];
}
