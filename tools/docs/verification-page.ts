import { escapeMarkdown } from "./generated-region.ts";
import type { HoldsTag } from "./holds-tags.ts";
import type { HeldPromise, VerificationArea } from "./promises.ts";

/** Promises that nothing holds and no reason excuses, stale reasons, and tags of no promise. */
export function verificationFaults(
  areas: readonly VerificationArea[],
  tags: readonly HoldsTag[],
): string[] {
  const promises = new Map(areas.flatMap((area) => Object.entries(area.promises)));
  const held = new Set(tags.flatMap(({ ids }) => ids));
  const faults = [...promises].flatMap(([id, promise]) => {
    if ((promise.check !== undefined) === held.has(id)) {
      return held.has(id)
        ? [`${id}: a test holds it now, so that its \`check\` must go`]
        : [`${id}: no test has the tag \`holds: ${id}\`, and no \`check\` says why`];
    }
    return [];
  });
  const strays = tags.flatMap(({ path, line, ids }) =>
    ids
      .filter((id, at) => !promises.has(id) || ids.indexOf(id) !== at)
      .map(
        (id) => `${path}:${line}: "${id}" is not a promise of docs/promises.yaml, or stands twice`,
      ),
  );
  return [...faults, ...strays];
}

/** The generated part of docs/verification.md. */
export function verificationTable(
  areas: readonly VerificationArea[],
  tags: readonly HoldsTag[],
): string {
  const tests = testsByPromise(tags);
  const sections = areas.map((area) => {
    const promises = Object.entries(area.promises)
      .filter(([, promise]) => !isUnchecked(promise))
      .map(([id, promise]) => promiseItem(promise, tests.get(id) ?? []));
    return `### ${area.area}\n\n${[...promises, ...knownLimits(area)].join("\n")}`;
  });
  return [summary(areas), ...sections, "## What is not checked", unchecked(areas)].join("\n\n");
}

function isUnchecked(promise: HeldPromise): boolean {
  return promise.check === "no test" || promise.check === "not built";
}

function summary(areas: readonly VerificationArea[]): string {
  const promises = areas.flatMap((area) => Object.values(area.promises));
  const count = (check: string) => promises.filter((promise) => promise.check === check).length;
  const byTests = promises.filter((promise) => promise.check === undefined).length;
  return (
    `${promises.length} promises: ${byTests} held by tests, ${count("benchmark")} by benchmarks, ` +
    `${count("by hand")} tried by hand, ${count("no test")} without a test, ` +
    `${count("not built")} not built.`
  );
}

/** In the order of files and lines. */
function testsByPromise(tags: readonly HoldsTag[]): Map<string, string[]> {
  const tests = new Map<string, string[]>();
  const ordered = [...tags].sort((a, b) =>
    a.path < b.path ? -1 : a.path > b.path ? 1 : a.line - b.line,
  );
  for (const { ids, path, title } of ordered) {
    const test = title === undefined ? `\`${path}\`` : `\`${path}\`: ${escapeMarkdown(title)}`;
    for (const id of ids) tests.set(id, [...(tests.get(id) ?? []), test]);
  }
  return tests;
}

function promiseItem(promise: HeldPromise, tests: readonly string[]): string {
  const held = promise.check ? [otherCheck(promise.check, promise.why)] : tests;
  return [`- ${promise.says}`, ...held.map((line) => `  - ${line}`)].join("\n");
}

function otherCheck(check: string, why: string | undefined): string {
  if (check === "benchmark")
    return `Measured by \`npm run bench:${why}\`, see [benchmarks](benchmarks.md).`;
  return `Tried by hand: ${why}`;
}

function knownLimits({ limits }: VerificationArea): string[] {
  return limits.length === 0 ? [] : ["- Known limits:", ...limits.map((limit) => `  - ${limit}`)];
}

function unchecked(areas: readonly VerificationArea[]): string {
  return areas
    .flatMap(({ area, promises }) => {
      const lines = Object.values(promises).flatMap((promise) =>
        isUnchecked(promise)
          ? [
              `- ${promise.says} ${promise.check === "no test" ? "No test." : "Not built."} ${promise.why ?? ""}`.trimEnd(),
            ]
          : [],
      );
      return lines.length === 0 ? [] : [`### Not checked: ${area}\n\n${lines.join("\n")}`];
    })
    .join("\n\n");
}
