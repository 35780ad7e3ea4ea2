import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { TriedMutant } from "./score.ts";
import type { MutationTarget } from "./targets.ts";

/** What a file's result is stored with. */
interface FileResult {
  readonly digest: string;
  readonly mutants: readonly TriedMutant[];
}

/** The files of a target whose code is mutated, in order. */
export function mutatedFiles(root: string, { name }: MutationTarget): string[] {
  return globSync(`${name}/**/*.ts`, {
    cwd: root,
    exclude: ["**/{testing,script,dist,node_modules}/**", "**/*.test.ts"],
  }).sort();
}

/**
 * Identifies what a target's results depend on: its folder with all test data, its tests, this
 * tool, and the versions of dependencies. Other packages are not included.
 */
export function inputsDigest(root: string, { name, tests, env }: MutationTarget): string {
  const patterns = [`${name}/**/*`, ...tests, "tools/mutation/*.{ts,mjs}", "package-lock.json"];
  const files = globSync(patterns, {
    cwd: root,
    exclude: ["**/{dist,node_modules}/**"],
    withFileTypes: true,
  })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  const hash = createHash("sha256").update(JSON.stringify([name, tests, env ?? {}]));
  for (const path of [...new Set(files)].sort()) {
    const content = createHash("sha256").update(readFileSync(path)).digest("hex");
    hash.update(`${path.slice(root.length)} ${content}\n`);
  }
  return hash.digest("hex");
}

/** Results by source file, each written when its file is complete. */
export class MutationResults {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Undefined where the file was not tried with these inputs. */
  read(file: string, digest: string): readonly TriedMutant[] | undefined {
    const result = this.#stored(file);
    return result?.digest === digest ? result.mutants : undefined;
  }

  write(file: string, digest: string, mutants: readonly TriedMutant[]): void {
    const path = this.#path(file, "result");
    const kept = mutants.map(({ fileName, status, replacement, location }) => ({
      fileName,
      status,
      replacement,
      location,
    }));
    writeFileSync(`${path}.new`, JSON.stringify({ digest, mutants: kept } satisfies FileResult));
    renameSync(`${path}.new`, path);
  }

  /** Files to try: those never tried first, so that each has a result after enough runs. */
  due(files: readonly string[], digest: string, fresh: boolean): string[] {
    const untried = files.filter((file) => fresh || this.read(file, digest) === undefined);
    const age = (file: string) => (this.#stored(file) ? 1 : 0);
    return untried.toSorted((a, b) => age(a) - age(b));
  }

  /** Where Stryker keeps a file's results by mutant; its folder exists. */
  incrementalFile(file: string): string {
    return this.#path(file, "mutants");
  }

  #path(file: string, kind: "result" | "mutants"): string {
    const path = join(this.#directory, `${file}.${kind}.json`);
    mkdirSync(dirname(path), { recursive: true });
    return path;
  }

  /** A file that cannot be read counts as absent. */
  #stored(file: string): FileResult | undefined {
    try {
      return JSON.parse(readFileSync(this.#path(file, "result"), "utf8")) as FileResult;
    } catch {
      return undefined;
    }
  }
}
