import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { generatedPages } from "./docs/pages.ts";
import { readSources, repositoryFiles } from "./tidy/source-file.ts";

/** `npm run docs` writes the generated parts of the pages, and docs/reference. */
const root = fileURLToPath(new URL("..", import.meta.url));
const read = (path: string) => readFileSync(join(root, path), "utf8");
const paths = repositoryFiles(root);
for (const [path, text] of generatedPages(paths, readSources(root, paths), read)) {
  writeFileSync(join(root, path), text);
}
