/**
 * Prints figures of this tree's structure beside those of commit 72dfc479:
 *
 *     npm run structure -- [--write | --check | --of CHECKOUT]
 *
 * `--write` puts the table into docs/internals/structure.md. `--check` ends with 1 where this tree is worse than that
 * page says. `--of` prints the figures of another checkout, as tools/structure/before.json has them.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { replaceGenerated } from "./docs/generated-region.ts";
import { measure, type StructureFigures } from "./structure/figures.ts";
import { structureTable, worseFigures } from "./structure/table.ts";
import { readSources, repositoryFiles } from "./tidy/source-file.ts";

const { values } = parseArgs({
  options: {
    write: { type: "boolean", default: false },
    check: { type: "boolean", default: false },
    of: { type: "string" },
  },
});
const here = resolve(import.meta.dirname, "..");
const page = join(here, "docs/internals/structure.md");
const figures = measureTree(values.of === undefined ? here : resolve(values.of));

if (values.of !== undefined) {
  console.log(JSON.stringify(figures, undefined, 2));
} else if (values.check) {
  const worse = worseFigures(readFileSync(page, "utf8"), figures);
  for (const fault of worse) console.error(fault);
  process.exitCode = worse.length > 0 ? 1 : 0;
} else {
  const before = JSON.parse(
    readFileSync(join(here, "tools/structure/before.json"), "utf8"),
  ) as StructureFigures;
  const table = structureTable(before, figures);
  console.log(table);
  if (values.write) {
    writeFileSync(page, replaceGenerated(readFileSync(page, "utf8"), "structure", table));
  }
}

function measureTree(root: string): StructureFigures {
  const paths = repositoryFiles(root);
  const pages = paths
    .filter((path) => path.endsWith(".md"))
    .map((path) => [path, readFileSync(join(root, path), "utf8")] as const);
  return measure(readSources(root, paths), new Map(pages));
}
