/** `npm run pack:client -- [--out DIR]`: the client as a package with all its types, which depends on no other. */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { declarationsOf, placeOfTypes } from "./declarations.mjs";

const ROOT = join(import.meta.dirname, "..", "..");
const CLIENT = "libs/client";
/** Its README, licence, and that of the types that it has of another package. */
const COPIED = [
  ["docs/guide/typescript-client.md", "README.md"],
  ["LICENSE", "LICENSE"],
  ["node_modules/zod/LICENSE", "types/zod/LICENSE"],
] as const;

const { values } = parseArgs({ options: { out: { type: "string", default: join(ROOT, "dist") } } });
const out = resolve(values.out);
mkdirSync(out, { recursive: true });
const work = mkdtempSync(join(tmpdir(), "heddle-client-"));
try {
  for (const [path, text] of packageTexts()) {
    mkdirSync(dirname(join(work, path)), { recursive: true });
    writeFileSync(join(work, path), text);
  }
  for (const [from, to] of COPIED) cpSync(join(ROOT, from), join(work, to));
  const packed = execFileSync("npm", ["pack", "--silent", "--pack-destination", out], {
    cwd: work,
    encoding: "utf8",
  });
  process.stdout.write(`${join(out, packed.trim())}\n`);
} finally {
  rmSync(work, { recursive: true });
}

function packageTexts(): Map<string, string> {
  const modules = globSync("dist/**/*.js", { cwd: join(ROOT, CLIENT) }).sort();
  const entries = modules.map((path) => `${CLIENT}/${path.replace(/\.js$/, ".d.ts")}`);
  return new Map([
    ["package.json", manifest()],
    ...modules.map((path) => [path, moduleText(path)] as const),
    ...declarationsOf(ROOT, entries, placeOf),
  ]);
}

/** The client's own declarations stay beside its modules. */
function placeOf(path: string): string {
  if (path.startsWith(`${CLIENT}/`)) return path.slice(CLIENT.length + 1);
  return placeOfTypes(path);
}

function moduleText(path: string): string {
  const text = readFileSync(join(ROOT, CLIENT, path), "utf8");
  return text.replace(/\n\/\/# sourceMappingURL=.*/, "");
}

function manifest(): string {
  const read = (path: string) => JSON.parse(readFileSync(join(ROOT, path), "utf8"));
  const { name, description, license, type, exports } = read(`${CLIENT}/package.json`);
  const { version } = read("package.json");
  const own = { name, version, description, license, type, exports, engines: { node: ">=20.3" } };
  return `${JSON.stringify(own, undefined, 2)}\n`;
}
