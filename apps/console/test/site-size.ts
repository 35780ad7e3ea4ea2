import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** The built console, as masters serve it. */
export const SITE_FOLDER = fileURLToPath(new URL("../dist/site/", import.meta.url));

/** Gzipped bytes of the JavaScript of the first page. */
export function initialBytes(): number {
  const page = readFileSync(`${SITE_FOLDER}index.html`, "utf8");
  const initial = [...page.matchAll(/(?:src|href)="\/console\/(assets\/[^"]+\.js)"/g)];
  return zippedBytes(initial.map(([, path = ""]) => path));
}

/** Gzipped bytes of all JavaScript and styles. */
export function totalBytes(): number {
  return zippedBytes(globSync("assets/*.{js,css}", { cwd: SITE_FOLDER }));
}

/** Throws where there are no files: the console is not built. */
function zippedBytes(paths: readonly string[]): number {
  if (paths.length === 0)
    throw new Error(`no files of the console in ${SITE_FOLDER}: npm run build`);
  const sizes = paths.map(
    (path) => gzipSync(readFileSync(SITE_FOLDER + path), { level: 9 }).length,
  );
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}
